"""PCP'20 (pcp20): start times and places in one constraint model whose size does not depend on the system's.

The parts are the defaults of `ModelChoice`. So the objective is `slowdown` of `cpsched/dispatchers/cp/cp_objective.py`.
"""

from __future__ import annotations

from cpsched.dispatchers.cp.constraint_dispatcher import family_member
from cpsched.dispatchers.cp.model_choice import ModelChoice

_SUMMARY = "Plans start times and places of all that could start now, for least slowdown, in one constraint model."

LISTED = (family_member("pcp20", _SUMMARY, "pcp20; search control of cp19", ModelChoice()),)
