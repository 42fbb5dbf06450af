"""PBS behind the bridge's ports: PBS's own commands, and a pure translation of what they print."""

from __future__ import annotations

from cpsched_bridge.adapters.pbs.pbs_options import Options, can, connect

__all__ = ["Options", "can", "connect"]
