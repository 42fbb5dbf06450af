"""Share code between the adapters of real clusters; it depends on no scheduler.

- `parallel_commands`: programs run in parallel with one deadline.
- `node_table`: nodes, capacities and node sets as a `Cluster`.
- `allocation`: the allocation of a running job as a request with its placement.
- `lease_text`: the claim of a bridge as text.
- `not_modelled`: the reason of an unmanaged job.
"""
