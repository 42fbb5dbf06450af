"""Implement the bridge's ports for PBS: its commands, and a pure translation."""

from __future__ import annotations

from cpsched_bridge.adapters.pbs.pbs_options import Options, can, connect

__all__ = ["Options", "can", "connect"]
