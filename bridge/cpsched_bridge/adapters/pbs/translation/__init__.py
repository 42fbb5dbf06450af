"""Translate PBS's objects into the bridge's model with pure functions.

- `pbs_job_ids`: job names and numbers.
- `vnodes`: vnodes as nodes, and their free amounts.
- `pbs_chunk_requests`: `select` and `place` as a request.
- `pbs_limits`, `pbs_reservations`: which jobs may start, and where.
- `pbs_jobs`, `pbs_running`: waiting jobs and running jobs.
- `pbs_ranking`: PBS's order of waiting jobs.
- `pbs_observation`: one reading as an `Observation`.
"""
