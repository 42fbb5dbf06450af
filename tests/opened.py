"""Imported by the server that forks processes, so that these kernels are loaded in it.

A process that loads them itself needs most of a second of CPU time.
"""

import cpsched.registry  # noqa: F401
import cpsched_sim.cluster.replay  # noqa: F401
from cpsched_sim.kernel_warm_up import load_registered_kernels

load_registered_kernels(lambda words: None)
