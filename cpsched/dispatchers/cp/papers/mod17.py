"""CPH (mod17 section 4): HCP as in that paper, with minimal total wait and the rules of its PRB."""

from __future__ import annotations

from cpsched.dispatchers.cp.constraint_dispatcher import family_member
from cpsched.dispatchers.cp.cp_dispatcher_config import CpDispatcherConfig

_SUMMARY = "Plans starts on pools with minimal total wait; order and nodes follow the priority rule of prb."
_CPH = CpDispatcherConfig("first", "doubles", "remaining", "wait", "urgency", "best-fit")

LISTED = (family_member("cph", _SUMMARY, "mod17 section 4", _CPH),)
