"""Backends behind the ports of the bridge: the simulated cluster and Slurm."""
