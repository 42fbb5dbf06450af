"""Slurm behind the bridge's ports: pyslurm in a process of its own, or Slurm's commands; and a pure translation.

`Options`, `connect` and `can` are what the bridge asks an adapter for. They are looked up when needed: the child
process imports this package too, and should be quick to start.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("Options", "connect", "can"):
        return getattr(import_module("cpsched_bridge.adapters.slurm.slurm_options"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
