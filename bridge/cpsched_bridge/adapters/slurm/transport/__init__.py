"""How Slurm is asked and told: pyslurm, in a child process behind a message protocol."""
