"""Translate Slurm's records into the bridge's values with pure functions.

- `slurm_observation` translates one reading into an `Observation`; each module below covers one subject.
- `slurm_pending_jobs`: pending records.
- `slurm_placed_jobs`: records of jobs that have or had nodes.
- `slurm_jobs` turns a record into a `Job`; `per_node_amounts` splits its amounts over nodes; `unsupported_requests`
  rejects requests that are not modelled.
- `slurm_nodes`, `free_capacity`, `slurm_partitions`, `slurm_reservations`, `gres_counts`: the cluster and its free
  capacity.
- `slurm_states`, `slurm_job_ids`: Slurm's states and job numbers.
"""
