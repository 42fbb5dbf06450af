"""Slurm's records into the bridge's values: pure functions, no Slurm library, no processes.

- `observation`: one reading as an `Observation`; the modules below walk one subject each.
- `queue`, `arrays`: pending records. `running`, `ended`: records of jobs that have, or had, nodes.
- `jobs`: where a record becomes a `Job`; `shares`: how its amounts are split over nodes; `unmodelled`: what is refused.
- `machine`, `nodes`, `partitions`, `reservations`, `gres`: the cluster and what is free on it.
- `states`, `ids`, `hostlist`: Slurm's words, numbers and node lists.
"""
