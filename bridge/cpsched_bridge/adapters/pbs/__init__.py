"""The PBS adapter, which runs PBS's commands and translates their output."""

from __future__ import annotations

from cpsched_bridge.adapters.pbs.pbs_options import Options, can, connect

__all__ = ["Options", "can", "connect"]
