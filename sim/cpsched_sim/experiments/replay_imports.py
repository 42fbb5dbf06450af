"""Import what every replay needs. The server that forks the replays' processes imports this module once."""

# ruff: noqa: F401
from __future__ import annotations

from cpsched import kernels
from cpsched.jit import numba_struct_types  # imports Numba, which takes most of the time
from cpsched_sim import offline_dispatcher, simulation
from cpsched_sim.cluster import replay
from cpsched_sim.experiments import task_runner
