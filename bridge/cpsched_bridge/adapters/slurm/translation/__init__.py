"""Slurm's records into the bridge's values: pure functions, no Slurm library."""
