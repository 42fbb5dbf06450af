"""Define PCP'20 (pcp20), whose model size is independent of the system's size.

One constraint model plans start times and places. Its parts are the defaults of `CpDispatcherConfig`. The objective is
`slowdown` in `cpsched/dispatchers/cp/cp_objective.py`.
"""

from __future__ import annotations

from cpsched.dispatchers.cp.constraint_dispatcher import build_cp_registration
from cpsched.dispatchers.cp.cp_dispatcher_config import CpDispatcherConfig

_SUMMARY = "Plans start times and places of jobs that could start now in one constraint model, with minimal slowdown."

REGISTRATIONS = (build_cp_registration("pcp20", _SUMMARY, "pcp20; search control of cp19", CpDispatcherConfig()),)
