"""Connect to Slurm through pyslurm, which runs in a child process.

- In the bridge: `pyslurm_transport` (calls) and `pyslurm_client` (the child's lifetime and deadlines).
- In the child: `pyslurm_worker` (the process), `pyslurm_reader` and `pyslurm_commands` (calls), and `pyslurm_rows`
  (plain records).
- In both: `wire_protocol` (the messages between bridge and child).
"""
