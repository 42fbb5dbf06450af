"""The two families of cp19: PCP, start times and nodes in one model, and HCP, start times first and nodes afterwards.

From the originals (no number) to PCP'19 and HCP'19 each row changes what the paper's section says, and nothing else:

- 1 (section 3): jobs that could start now, and a search that knows when it is done;
- 2 (section 4): a running job that has outlived its estimate goes on for a second;
- '19 (section 4): slowdown as objective and as priority, and PCP searches as HCP does.
"""

from __future__ import annotations

from functools import partial

from cpsched.dispatchers.cp.kit import recipe

_PCP = partial(recipe, source="cp19 section 2.2 (PCP)", allocation="nodes", first_limit_s=1.0, model_s=16.0)
_HCP = partial(recipe, source="cp19 section 2.2 (HCP)", allocation="best-fit")
_LATE = "for the least lateness beyond expected waits"
_WAIT = "for the least wait, queues that expect short waits first"

LISTED = (
    _PCP("pcp", f"Plans starts and nodes of the whole queue {_LATE}; the solver searches in its own way.",
         jobs="all", control="doubles", running="remaining", objective="late", priority="none"),
    _PCP("pcp1", "PCP for the jobs that could start now, with a search that knows when it is done.",
         jobs="startable", control="stops", running="remaining", objective="late", priority="none"),
    _PCP("pcp2", "PCP1 where a running job goes on for one second at least.",
         jobs="startable", control="stops", running="at-least-1s", objective="late", priority="none"),
    recipe("pcp19", "PCP'19: starts and nodes of what could start now, for least slowdown.", "cp19 section 4 (PCP3)",
           jobs="startable", control="stops", running="at-least-1s", objective="slowdown", priority="slowdown",
           allocation="nodes"),
    _HCP("hcp", f"Plans starts on pools {_WAIT}; nodes by best fit afterwards.",
         jobs="first", control="doubles", running="remaining", objective="weighted-wait", priority="urgency"),
    _HCP("hcp1", "HCP for the jobs that could start now, with a search that knows when it is done.",
         jobs="startable", control="stops", running="remaining", objective="weighted-wait", priority="urgency"),
    _HCP("hcp2", "HCP1 where a running job goes on for one second at least.",
         jobs="startable", control="stops", running="at-least-1s", objective="weighted-wait", priority="urgency"),
    recipe("hcp19", "HCP'19: starts on pools of all that could start now, for least slowdown; nodes by best fit.",
           "cp19 section 4 (HCP3)", jobs="startable", control="stops", running="at-least-1s", objective="slowdown",
           priority="slowdown", allocation="best-fit"),
)  # fmt: skip
