"""Chaos on a simulated cluster: a seed defines a history of a workload, faults of its surroundings, and kills.

    make chaos KILLS=1000 SEED=1

- `history`: the events, as a list of steps drawn from the seed; any part of it is a history, too, so it shrinks.
- `site`: the cluster. Unlike the bridge, it knows who holds a job and why, and logs everything.
- `disk`: SQLite connections that fail, and at which a process can die.
- `world`: plays a history: the bridge, its deaths, its files.
- `judge`: compares ledger, cluster and log, using only the words of the bridge's ledger.

A kill is an exception that nothing catches, raised at the n-th boundary from now: a command, each job within a command,
a statement of SQLite, before or after a commit. After it every call of the dead process fails, so that no handler can
do what a killed process could not.
"""
