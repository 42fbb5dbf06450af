"""One cycle after the other: read the cluster, decide, send commands, write down what came of them.

- `loop`: the order of a cycle, and what becomes of failures (`failures`).
- `reading`, `learning`: the cluster as it is, and what the policy learns from it.
- `reconcile`: what has become of each job of the ledger; `progress`: what of that is to be told.
- `snapshots`, `deciding`, `asking`, `deadline`: the decision, by a policy that is not trusted.
- `commands`, `hand_back`: what is asked of the cluster.
- `mode`, `guard`, `rest`, `pace`: when the bridge works, how much it does, how long it waits.
"""
