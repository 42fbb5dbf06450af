"""The Slurm adapter, which uses pyslurm or Slurm's commands.

It provides an adapter's `Options`, `connect` and `can`. Python imports them on first use, because pyslurm's child
process also imports this package and should start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("Options", "connect", "can"):
        return getattr(import_module("cpsched_bridge.adapters.slurm.slurm_options"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
