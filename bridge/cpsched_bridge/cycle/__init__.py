"""One cycle after the other: read the cluster, decide, send commands, write down what came of them.

- `loop`: the steps of a cycle; `failures`: what becomes of its exceptions.
- `startup`, `timing`: what comes before the first cycle, and when the next one begins.
- `reading`, `learning`: the cluster as it is, and what the policy learns from it.
- `reconcile`: what has become of each job of the ledger; `progress`: what of that is reported.
- `snapshots`, `deciding`, `fallback`, `deadline`: the decision, by a policy that is not trusted.
- `sending`, `commands`, `hand_back`, `adviser`: what is asked of the cluster.
- `health`, `guard`, `claims`: whether the bridge may work, and how much it does.
- `telling`: what is written down and reported.
"""
