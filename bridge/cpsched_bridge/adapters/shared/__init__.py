"""Provide code that the adapters for real clusters share, for any scheduler.

- `adapter_errors`: the error for a job that the bridge cannot model, and errors of programs.
- `node_table`: represents nodes as a `Cluster`, and a running job's allocation as a request and a placement.
- `lease_text`: formats and parses a bridge's lease.
"""
