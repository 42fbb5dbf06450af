"""Define CPH (mod17 section 4): HCP with minimal total wait and the rule `prb`."""

from __future__ import annotations

from cpsched.dispatchers.cp.constraint_dispatcher import build_cp_registration
from cpsched.dispatchers.cp.cp_dispatcher_config import CpDispatcherConfig

_SUMMARY = "Plans starts on pools with minimal total wait. Order and nodes follow the priority rule prb."
_CPH = CpDispatcherConfig("first", "doubles", "remaining", "wait", "urgency", "best-fit")

REGISTRATIONS = (build_cp_registration("cph", _SUMMARY, "mod17 section 4", _CPH),)
