"""The two families of cp19: PCP plans start times and nodes in one model, HCP start times first and nodes afterwards.

From the originals (no number) to PCP'19 and HCP'19, each step changes only what its section of the paper states:

- 1 (section 3): only jobs that could start now, and a search with a stopping rule;
- 2 (section 4): a running job that has outlived its estimate takes one more second;
- '19 (section 4): slowdown as objective and priority, and PCP searches like HCP.
"""

from __future__ import annotations

from dataclasses import replace

from cpsched.dispatchers.cp.constraint_dispatcher import family_member
from cpsched.dispatchers.cp.cp_dispatcher_config import CpDispatcherConfig

_PCP = CpDispatcherConfig("all", "doubles", "remaining", "late", "none", "nodes", model_s=16.0)
_PCP1 = replace(_PCP, jobs="startable", control="stops")
_PCP2 = replace(_PCP1, running="at-least-1s")
_HCP = CpDispatcherConfig("first", "doubles", "remaining", "weighted-wait", "urgency", "best-fit")
_HCP1 = replace(_HCP, jobs="startable", control="stops")
_HCP2 = replace(_HCP1, running="at-least-1s")
_LATE = "with minimal lateness beyond expected waits"
_WAIT = "with minimal wait, weighted for queues with short expected waits"
_OF_PCP, _OF_HCP = "cp19 section 2.2 (PCP)", "cp19 section 2.2 (HCP)"

LISTED = (
    family_member("pcp", f"Plans starts and nodes of the whole queue {_LATE}, with the solver's own search.",
           _OF_PCP, _PCP, first_limit_s=1.0),
    family_member("pcp1", "PCP for the jobs that could start now, with a stopping rule for the search.",
           _OF_PCP, _PCP1, first_limit_s=1.0),
    family_member("pcp2", "PCP1 with at least one second for running jobs.", _OF_PCP, _PCP2, first_limit_s=1.0),
    family_member("pcp19", "PCP'19: starts and nodes of jobs that could start now, with minimal slowdown.",
           "cp19 section 4 (PCP3)", CpDispatcherConfig(allocation="nodes")),
    family_member("hcp", f"Plans starts on pools {_WAIT}; then selects nodes by best fit.", _OF_HCP, _HCP),
    family_member("hcp1", "HCP for the jobs that could start now, with a stopping rule for the search.", _OF_HCP, _HCP1),  # noqa: E501
    family_member("hcp2", "HCP1 with at least one second for running jobs.", _OF_HCP, _HCP2),
    family_member("hcp19", "HCP'19: starts on pools of jobs that could start now, with minimal slowdown; nodes by best fit.",  # noqa: E501
           "cp19 section 4 (HCP3)", CpDispatcherConfig(allocation="best-fit")),
)  # fmt: skip
