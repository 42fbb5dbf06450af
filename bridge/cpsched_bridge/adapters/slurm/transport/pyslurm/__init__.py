"""Connect to Slurm through pyslurm, which runs in a child process.

- In the bridge: `pyslurm_transport` (calls and changes), `pyslurm_reader` (readings), and `pyslurm_client` (the calls
  to the child and their deadlines).
- In the child: `pyslurm_worker`.
- In both: `pyslurm_rows` (plain tables).
"""
