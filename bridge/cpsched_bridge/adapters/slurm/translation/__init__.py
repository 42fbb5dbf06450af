"""Translate Slurm's records into the bridge's values by pure functions.

- `slurm_observation`: translates one reading into an `Observation`; each module below covers one subject.
- `slurm_queue`, `array_tasks`: pending records. `slurm_running`, `ended_jobs`: records of jobs that have or had nodes.
- `slurm_jobs`: turns a record into a `Job`. `job_splits`: splits its amounts over nodes. `unsupported_requests`:
  rejects what is not modelled.
- `slurm_nodes`, `node_availability`, `slurm_partitions`, `slurm_reservations`, `gres_counts`: the cluster and its free
  capacity.
- `slurm_states`, `slurm_job_ids`, `task_ranges`: Slurm's words, numbers and node lists.
"""
