"""One cycle after the other: read the cluster, decide, send commands, write down what came of them.

- `loop`: the steps of a cycle; `failures`: what becomes of its exceptions.
- `startup`, `timing`: what comes before the first cycle, and when the next one begins.
- `reading`, `learning`: the cluster as it is, and what the policy learns from it.
- `reconcile`, `start_outcomes`: what has become of each job of the ledger, and of starts.
- `snapshots`, `deciding`, `fallback`, `deadline`: the decision, by a policy that is not trusted.
- `sending`, `commands`, `hand_back`, `adviser`: what is asked of the cluster.
- `backoff`: jobs whose starts fail, and commands without effect.
- `health`, `circuit_breaker`, `claims`: whether the bridge may work.
- `telling`: what is written down and reported.
"""
