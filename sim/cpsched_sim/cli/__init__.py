"""The commands of the simulator; `cpsched_bridge.program.cli` mounts them beside its own.

Heavy imports (NumPy, Numba, solvers) wait until a command runs, so that `--help` and `--version` are quick.
"""

from cpsched_sim.cli import (  # noqa: F401, I001  # in the order of the help
    simulate_commands,
    study_command,
    benchmark_command,
    whatif_command,
    tune_command,
    accuracy_commands,
    list_commands,
    workload_command,
    system_command,
)
from cpsched_sim.cli.simulator_app import app, look_here_too

__all__ = ["app", "look_here_too"]
