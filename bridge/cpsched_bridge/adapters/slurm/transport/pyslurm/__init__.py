"""The transport over pyslurm, in a child process behind a message protocol.

- In the bridge: `transport` (the calls), `client` (the child's life and deadlines).
- In the child: `child` (the process), `reading`, `commands`, `arrays`, `scontrol` (the calls), `rows` (plain records).
- Between them: `wire` (frames).
"""
