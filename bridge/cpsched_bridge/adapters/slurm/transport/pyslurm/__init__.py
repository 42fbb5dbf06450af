"""Connect to Slurm through pyslurm, which runs in a child process.

- In the bridge: `pyslurm_transport` (calls), `pyslurm_reader` and `pyslurm_commands` (readings and changes), and
  `pyslurm_client` (the calls to the child and their deadlines).
- In the child: `pyslurm_worker`.
- In both: `pyslurm_rows` (plain tables).
"""
