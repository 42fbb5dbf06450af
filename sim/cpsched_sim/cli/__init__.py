"""The commands of the simulator; `cpsched_bridge.program.cli` mounts them beside its own.

Heavy imports (NumPy, Numba, solvers) wait until a command runs, so that `--help` and `--version` are quick.
"""

from cpsched_sim.cli import replays, study, benchmark, whatif, tuning, studies, lists, workload, system  # noqa: F401, I001  # in the order of the help
from cpsched_sim.cli.program import app, look_here_too

__all__ = ["app", "look_here_too"]
