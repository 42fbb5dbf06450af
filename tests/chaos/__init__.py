"""Chaos tests on a simulated cluster. A seed defines a history: a workload, faults in the environment, and kills.

    make chaos KILLS=1000 SEED=1

- `history`: the events, as a list of steps drawn from the seed. Any part of the list is also a history, so a history
  can shrink.
- `site`: the cluster. Unlike the bridge, it knows who holds a job and why, and logs everything.
- `disk`: SQLite connections that fail, and at which a process can die.
- `world`: runs a history: the bridge, its crashes and its files.
- `judge`: compares ledger, cluster and log, using only the terms of the bridge's ledger.

A kill is an exception that nothing catches, raised at the n-th boundary from now. Boundaries are commands, each job
within a command, SQLite statements, and the start and end of a commit. After a kill, every call of the dead process
fails, so that no handler can do what a killed process could not.
"""
