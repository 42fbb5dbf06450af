"""Define the two families of cp19, PCP and HCP.

PCP plans start times and nodes together, and HCP one after the other. Later versions add changes to the original:

- 1 (section 3): plan only jobs that could start now, and search with a stopping rule.
- 2 (section 4): expect a running job that has outlived its estimate to take one more second.
- '19 (section 4): use slowdown as the objective and priority, and HCP's search in PCP as well.
"""

from __future__ import annotations

from dataclasses import replace

from cpsched.dispatchers.cp.constraint_dispatcher import build_cp_registration
from cpsched.dispatchers.cp.cp_dispatcher_config import CpDispatcherConfig

_PCP = CpDispatcherConfig("all", "doubles", "remaining", "late", "none", "nodes", model_s=16.0)
_PCP1 = replace(_PCP, jobs="startable", control="stops")
_PCP2 = replace(_PCP1, running="at-least-1s")
_HCP = CpDispatcherConfig("first", "doubles", "remaining", "weighted-wait", "urgency", "best-fit")
_HCP1 = replace(_HCP, jobs="startable", control="stops")
_HCP2 = replace(_HCP1, running="at-least-1s")
_LATENESS_PHRASE = "with minimal lateness relative to expected waits"
_WAIT_PHRASE = "with minimal wait, weighted in favour of queues with short expected waits"
_PCP_SOURCE, _HCP_SOURCE = "cp19 section 2.2 (PCP)", "cp19 section 2.2 (HCP)"

REGISTRATIONS = (
    build_cp_registration("pcp", f"Plans starts and nodes of the whole queue {_LATENESS_PHRASE}, "
           "with the solver's own search.", _PCP_SOURCE, _PCP, first_limit_s=1.0),
    build_cp_registration("pcp1", "PCP for the jobs that could start now, with a stopping rule for the search.",
           _PCP_SOURCE, _PCP1, first_limit_s=1.0),
    build_cp_registration("pcp2", "PCP1 with at least one second for running jobs.", _PCP_SOURCE, _PCP2,
           first_limit_s=1.0),
    build_cp_registration("pcp19", "PCP'19: plans starts and nodes of jobs that could start now with minimal slowdown.",
           "cp19 section 4 (PCP3)", CpDispatcherConfig(allocation="nodes")),
    build_cp_registration("hcp", f"Plans starts on pools {_WAIT_PHRASE}, and then selects nodes by best fit.",
           _HCP_SOURCE, _HCP),
    build_cp_registration("hcp1", "HCP for the jobs that could start now, with a stopping rule for the search.",
           _HCP_SOURCE, _HCP1),
    build_cp_registration("hcp2", "HCP1 with at least one second for running jobs.", _HCP_SOURCE, _HCP2),
    build_cp_registration("hcp19", "HCP'19: plans jobs that could start now on pools, with minimal slowdown, and selects nodes by best fit.",  # noqa: E501
           "cp19 section 4 (HCP3)", CpDispatcherConfig(allocation="best-fit")),
)  # fmt: skip
