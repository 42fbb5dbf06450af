"""Format and parse the controlling bridge's lease."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from cpsched.errors import escape_controls
from cpsched_bridge.ports import Lease


def format_lease(lease: Lease) -> str:
    """Return the lease as text without blanks or quotes. A lease that was parsed keeps its text."""
    if not lease.bridge:  # malformed text
        return lease.run
    facts = {"bridge": lease.bridge, "run": lease.run, "beat": lease.beat, "on": escape_controls(lease.where)}
    facts |= {"epoch": lease.epoch} if lease.epoch else {}
    facts |= {"standby": lease.standby} if lease.standby else {}
    return urlencode(facts, safe=":/")


def parse_lease(text: str, unknown: str) -> Lease:
    """Return the lease in `text`.

    Malformed text becomes a lease whose location consists of `unknown` and the text.
    """
    found = dict(parse_qsl(text))
    try:
        where, epoch = escape_controls(found["on"]), int(found.get("epoch", 0))
        return Lease(found["bridge"], found["run"], int(found["beat"]), where, epoch, found.get("standby", ""))
    except (KeyError, ValueError):
        return Lease("", text, 0, f"{unknown}: {escape_controls(text)}")
