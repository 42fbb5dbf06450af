"""Provide code that the adapters for real clusters share, for any scheduler.

- `program_errors`: translates the results of programs into errors of the bridge.
- `node_table`: represents nodes, capacities and node sets as a `Cluster`.
- `allocation`: translates a running job's allocation into a request and a placement.
- `lease_text`: formats and parses a bridge's lease.
- `job_not_modelled`: defines the error for a job that the bridge cannot model.
"""
