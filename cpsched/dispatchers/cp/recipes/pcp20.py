"""PCP'20 (pcp20): start times and places in one constraint model whose size does not depend on the system's.

The parts are the defaults of `Recipe`. So the objective is `slowdown` of `cpsched/dispatchers/cp/objective.py`.
"""

from __future__ import annotations

from cpsched.dispatchers.cp.kit import member
from cpsched.dispatchers.cp.recipe import Recipe

_SUMMARY = "Plans start times and places of all that could start now, for least slowdown, in one constraint model."

LISTED = (member("pcp20", _SUMMARY, "pcp20; search control of cp19", Recipe()),)
