"""Imported where processes are forked from: what is imported by then has its compiled kernels loaded.

A process that loads them itself takes most of a second of CPU time for it.
"""

import cpsched.registry  # noqa: F401
import cpsched_sim.cluster.replay  # noqa: F401
from cpsched_sim.kernel_warm_up import load_all_kernels

load_all_kernels(lambda words: None)
