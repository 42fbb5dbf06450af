"""What the adapters of real clusters share; nothing in here knows which cluster it is beside.

- `asking`: programs run side by side with one deadline.
- `machine`: nodes, capacities and node sets as a `Cluster`.
- `allocation`: what a placed job has, as a request with its placement.
- `claim_words`: the claim of a bridge as a text.
- `unmodelled`: why a job is left to the cluster's own scheduler.
"""
