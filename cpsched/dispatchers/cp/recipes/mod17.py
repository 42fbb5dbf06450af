"""CPH (mod17 section 4): HCP as that paper uses it, for the least total wait, with the rules of its PRB."""

from __future__ import annotations

from cpsched.dispatchers.cp.kit import member
from cpsched.dispatchers.cp.recipe import Recipe

_SUMMARY = "Plans starts on pools for the least total wait; order and nodes by the priority rule of prb."
_CPH = Recipe("first", "doubles", "remaining", "wait", "urgency", "best-fit")

LISTED = (member("cph", _SUMMARY, "mod17 section 4", _CPH),)
