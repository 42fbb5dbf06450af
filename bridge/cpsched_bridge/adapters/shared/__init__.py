"""Share code between the adapters for real clusters; this package depends on no scheduler.

- `parallel_commands`: runs programs in parallel with one deadline.
- `node_table`: represents nodes, capacities and node sets as a `Cluster`.
- `allocation`: translates a running job's allocation to a request with its placement.
- `lease_text`: formats and parses a bridge's claim.
- `not_modelled`: defines the reason for leaving a job unmanaged.
"""
