"""Slurm behind the bridge's ports: pyslurm in a process of its own, and a pure translation of its records."""
