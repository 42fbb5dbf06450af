"""The claim of a bridge in control as a text, wherever a cluster has a place for it."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from cpsched.errors import escape_controls
from cpsched_bridge.ports import Lease


def format_lease(claim: Lease) -> str:
    """The claim as a text: without blanks and quotes, whatever a path may have."""
    facts = {"bridge": claim.bridge, "run": claim.run, "beat": claim.beat, "on": escape_controls(claim.where)}
    return urlencode(facts, safe=":/")


def parse_lease(text: str, unknown: str) -> Lease:
    """The claim that a text makes; odd words are a claim of somebody `unknown`."""
    found = dict(parse_qsl(text))
    try:
        return Lease(found["bridge"], found["run"], int(found["beat"]), escape_controls(found["on"]))
    except (KeyError, ValueError):
        return Lease("", text, 0, f"{unknown}: {escape_controls(text)}")
