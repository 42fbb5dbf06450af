"""Define the constraint-programming dispatchers of four papers: cp19, debs24, mod17 and pcp20.

cp19 has two families. PCP plans start times and nodes together, and HCP one after the other. Later versions add changes
to the original:

- 1 (section 3): plan only jobs that could start now, and search with a stopping rule.
- 2 (section 4): expect a running job that has outlived its estimate to take one more second.
- '19 (section 4): use slowdown as the objective and priority, and HCP's search in PCP as well.

debs24 plans online with CP-SAT, with one dispatcher per objective (sections 2.3, 5.2 and 5.4). mod17's CPH (section 4)
is HCP with minimal total wait and the rule `prb`. PCP'20 (pcp20) has a model whose size is independent of the system's
size. One constraint model plans start times and places. Its parts are the defaults of `CpDispatcherConfig`. Its
objective is `slowdown` in `cpsched/dispatchers/cp/cp_objective.py`.
"""

from __future__ import annotations

from dataclasses import replace

from cpsched.dispatchers.cp.constraint_dispatcher import build_cp_registration
from cpsched.dispatchers.cp.cp_dispatcher_config import CpDispatcherConfig
from cpsched.dispatchers.cp.cp_sat_dispatcher import CpSatDispatcher
from cpsched.registration import Registration

_PCP = CpDispatcherConfig("all", "doubles", "remaining", "late", "none", "nodes", model_s=16.0)
_PCP1 = replace(_PCP, jobs="startable", control="stops")
_PCP2 = replace(_PCP1, running="at-least-1s")
_HCP = CpDispatcherConfig("first", "doubles", "remaining", "weighted-wait", "urgency", "best-fit")
_HCP1 = replace(_HCP, jobs="startable", control="stops")
_HCP2 = replace(_HCP1, running="at-least-1s")
_LATENESS_PHRASE = "with minimal lateness relative to expected waits"
_WAIT_PHRASE = "with minimal wait, weighted in favour of queues with short expected waits"
_PCP_SOURCE, _HCP_SOURCE = "cp19 section 2.2 (PCP)", "cp19 section 2.2 (HCP)"
_CPH_SUMMARY = "Plans starts on pools with minimal total wait. Order and nodes follow the priority rule prb."
_CPH = CpDispatcherConfig("first", "doubles", "remaining", "wait", "urgency", "best-fit")
_PCP20_SUMMARY = (
    "Plans start times and places of jobs that could start now in one constraint model, with minimal slowdown."
)


def _build_debs24_registration(name: str, what: str, section: str, **fixed: str) -> Registration:
    summary = f"Plans the whole queue on pools with minimal {what}."
    return Registration(name, summary, f"debs24 section {section}", CpSatDispatcher, fixed)


_CP19_REGISTRATIONS = (
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

REGISTRATIONS = (
    *_CP19_REGISTRATIONS,
    _build_debs24_registration("cp-bsld", "bounded slowdown", "5.2", objective="bsld"),
    _build_debs24_registration("cp-af", "mean response time", "5.3", objective="af"),
    _build_debs24_registration("cp-awf", "mean response time weighted by area", "5.1", objective="awf"),
    _build_debs24_registration("cp-p2sf", "P2SF", "5.4", objective="p2sf"),
    _build_debs24_registration(
        "cp-bsld+",
        "bounded slowdown, with three list plans as additional starting points",
        "5.2",
        objective="bsld",
        plans="spf,saf,sjf",
    ),
    _build_debs24_registration(
        "cp-p2sf+", "P2SF, with a list plan as an additional starting point", "5.4", objective="p2sf", plans="reg"
    ),
    build_cp_registration("cph", _CPH_SUMMARY, "mod17 section 4", _CPH),
    build_cp_registration("pcp20", _PCP20_SUMMARY, "pcp20; search control of cp19", CpDispatcherConfig()),
)
