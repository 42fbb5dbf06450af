"""The simulator's commands, which `cpsched_bridge.program.cli` includes.

Heavy imports (NumPy, Numba, solvers) are deferred until a command runs, so that `--help` and `--version` are fast.
"""

from cpsched_sim.cli import (  # noqa: F401, I001  # in the order of the help
    simulate_commands,
    study_command,
    whatif_command,
    tune_command,
    accuracy_commands,
    registry_commands,
    input_commands,
)
from cpsched_sim.cli.simulator_app import app, add_current_directory

__all__ = ["add_current_directory", "app"]
