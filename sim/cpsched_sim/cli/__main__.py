"""Run as `python -m cpsched_sim.cli`."""

from cpsched_sim.cli import app

app(prog_name="cpsched")
