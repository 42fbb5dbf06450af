"""Translate PBS's objects into the bridge's model with pure functions.

- `vnodes`: vnodes as nodes, their free amounts, and reservations of vnodes.
- `pbs_chunk_requests`: `select` and `place` as a request.
- `pbs_limits`: which jobs may start.
- `pbs_jobs`: names and numbers of jobs, and waiting jobs.
- `pbs_ranking`: PBS's order of waiting jobs.
- `pbs_observation`: running jobs, and one reading as an `Observation`.
"""
