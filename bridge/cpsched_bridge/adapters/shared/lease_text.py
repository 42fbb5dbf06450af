"""Format and parse the controlling bridge's lease."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from cpsched.errors import escape_controls
from cpsched_bridge.ports import Lease


def format_lease(lease: Lease) -> str:
    """Return the lease as text without blanks or quotes."""
    facts = {"bridge": lease.bridge, "run": lease.run, "beat": lease.beat, "on": escape_controls(lease.where)}
    return urlencode(facts, safe=":/")


def parse_lease(text: str, unknown: str) -> Lease:
    """Return the lease in `text`.

    Malformed text becomes a lease whose location consists of `unknown` and the text.
    """
    found = dict(parse_qsl(text))
    try:
        return Lease(found["bridge"], found["run"], int(found["beat"]), escape_controls(found["on"]))
    except (KeyError, ValueError):
        return Lease("", text, 0, f"{unknown}: {escape_controls(text)}")
