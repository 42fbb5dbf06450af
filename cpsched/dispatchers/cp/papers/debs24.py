"""Define online CP per objective with CP-SAT (debs24 sections 2.3, 5.2 and 5.4)."""

from __future__ import annotations

from cpsched.dispatchers.cp.cp_sat_dispatcher import CpSatDispatcher
from cpsched.registration import Registration


def _build_registration(name: str, what: str, section: str, **fixed: str) -> Registration:
    summary = f"Plans the whole queue on pools with minimal {what}."
    return Registration(name, summary, f"debs24 section {section}", CpSatDispatcher, fixed)


REGISTRATIONS = (
    _build_registration("cp-bsld", "bounded slowdown", "5.2", objective="bsld"),
    _build_registration("cp-af", "mean response time", "5.3", objective="af"),
    _build_registration("cp-awf", "mean response time weighted by area", "5.1", objective="awf"),
    _build_registration("cp-p2sf", "P2SF", "5.4", objective="p2sf"),
    _build_registration(
        "cp-bsld+",
        "bounded slowdown, with three list plans as additional starting points",
        "5.2",
        objective="bsld",
        plans="spf,saf,sjf",
    ),
    _build_registration(
        "cp-p2sf+", "P2SF, with a list plan as an additional starting point", "5.4", objective="p2sf", plans="reg"
    ),
)
