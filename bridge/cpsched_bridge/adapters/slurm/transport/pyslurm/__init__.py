"""Connect to Slurm through pyslurm, in a child process behind a message protocol.

- In the bridge: `pyslurm_transport` (the calls), `pyslurm_client` (the child's life and deadlines).
- In the child: `pyslurm_worker` (the process), `pyslurm_reader`, `pyslurm_commands` (the calls), `pyslurm_rows` (plain
  records).
- Between them: `wire_protocol` (frames).
"""
