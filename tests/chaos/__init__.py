"""Chaos on a simulated cluster: one seed is one history of a workload, faults of everything around, and kills.

    make chaos KILLS=1000 SEED=1

- `history`: what happens, as a list of steps drawn from the seed; any part of it is a history too, so it shrinks.
- `site`: the cluster. It knows who holds a job and why, which the bridge does not, and writes everything down.
- `disk`: SQLite connections that fail, and that a process can die at.
- `world`: plays a history: the bridge, its deaths, its files.
- `judge`: compares ledger, cluster and what was written down, knowing of the bridge only the ledger's words.

A kill is an exception that nothing catches, raised at the n-th boundary from now: a command, each job inside of a
command, a statement of SQLite, before or after a commit. After it every call of the dead process fails, so that no
handler on the way does anything that a killed process could not.
"""
