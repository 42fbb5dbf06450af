"""Run the simulator's commands with `python -m cpsched_sim.cli`."""

from cpsched_sim.cli import app

if __name__ == "__main__":  # `cpsched warm-up` imports every module
    app(prog_name="cpsched")
