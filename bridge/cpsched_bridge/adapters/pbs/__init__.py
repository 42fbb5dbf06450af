"""The PBS adapter: run PBS's commands, and translate their output with pure functions."""

from __future__ import annotations

from cpsched_bridge.adapters.pbs.pbs_options import Options, can, connect

__all__ = ["Options", "can", "connect"]
