"""Request a decision from the policy, verify it, and prepare it for the journal."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from cpsched.errors import join_abbreviated
from cpsched.feasibility import verify
from cpsched.model import Cluster, Decision, PowerCap, Snapshot
from cpsched.policy import Policy
from cpsched.site.admission import LimitCompliantDecision, decide_respecting_limits
from cpsched_bridge.cycle.cluster_state_builder import build_cluster_state
from cpsched_bridge.cycle.decision_deadline import call_policy
from cpsched_bridge.cycle.isolated_dispatcher import IsolatedDispatcher
from cpsched_bridge.cycle.real_clock import record_phase_duration
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import InvalidSetting, PolicyFailure
from cpsched_bridge.ports import LoopClock, Observation
from cpsched_bridge.store.ledger import ManagedJobEntry
from cpsched_bridge.store.round_records import decision_to_json, round_trip_json

FALLBACK_PATH = "fallback"
"""Name of the fallback's decision path in the journal and the metrics."""

_MAX_LISTED_VIOLATIONS = 3
"""Maximum number of violations listed in a message. Further violations are only counted."""


@dataclass(frozen=True, slots=True)
class VerifiedDecider:
    """A component that requests and verifies decisions, each within `limit_s` seconds."""

    policy: Policy
    limit_s: float
    pace: LoopClock
    power: PowerCap | None = None
    """The configured power cap."""

    def not_ready_reason(self) -> str | None:
        """Return the start-up step of the dispatcher's process, or None if it is ready."""
        dispatcher = self.policy.dispatcher
        return dispatcher.not_ready_reason() if isinstance(dispatcher, IsolatedDispatcher) else None

    def decide(self, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport) -> None:
        """Add the snapshot, the pending jobs, the decision and the starts to the report.

        Raise `PolicyFailure` if the policy raises an exception, exceeds its time limit, or returns a decision that is
        invalid or cannot be recorded. In these cases, the report contains no starts.
        """
        try:
            call_policy(self.limit_s, lambda: self._make_decision(seen, entries, report))
        except PolicyFailure as failure:
            report.policy_failure = failure.kind
            report.decision, report.starts = None, {}
            raise

    def _make_decision(self, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport) -> None:
        with record_phase_duration(report, "decide", self.pace):
            scene = build_cluster_state(seen, entries, report.mode == "control", report.backoff)
            if self.power is not None:
                scene = replace(scene, cluster=_apply_power_cap(scene.cluster, self.power))
            whole = report.snapshot = self.policy.add_estimates(scene)
            report.waiting = list(whole.queued_jobs())
            found, memory = self._decide_within_run_limits(whole, seen)
            snapshot = report.snapshot = found.snapshot
            decision, report.limited = found.decision, found.limited
            report.waiting = list(snapshot.queued_jobs())
        if not isinstance(decision, Decision):
            raise PolicyFailure("decision_failed", f"the dispatcher returned {type(decision).__name__}, not a Decision")
        if report.fallback:
            decision = replace(decision, effort=replace(decision.effort, path=FALLBACK_PATH))
        with record_phase_duration(report, "verify", self.pace):
            report.violations = verify(decision, snapshot)
        if report.violations:
            with contextlib.suppress(Exception):  # a start of an unknown job cannot be recorded
                report.recorded = decision_to_json(decision, snapshot)
            raise PolicyFailure("rule_broken", _format_violations(report))
        report.memory = memory
        report.replayable = memory is not None or not self.policy.dispatcher_learns
        report.recorded = decision_to_json(decision, snapshot)
        starts = decision.starts_by_job(snapshot)
        if len(starts) < len(decision.starts):
            raise PolicyFailure("rule_broken", "the decision starts a job twice")
        report.decision, report.starts = decision, starts

    def _decide_within_run_limits(self, snapshot: Snapshot, seen: Observation) -> tuple[LimitCompliantDecision, object]:
        """Return a decision within the site's limits, and the policy's memory before it.

        Starting jobs count as running. A policy that is called twice may change in between, so the returned memory is
        from before the call that made the returned decision.
        """
        memories: list[object] = []

        def decide(of: Snapshot) -> Decision:
            memories.append(round_trip_json(self.policy.memory()))
            began_s = self.pace.monotonic_s()
            decision = self.policy.decide(of, "plan")
            self.policy.took(self.pace.monotonic_s() - began_s)
            return decision

        running, limits = {each.job.id for each in seen.running}, seen.limits
        jobs = snapshot.table.jobs
        coming = [jobs[slot].id for slot in snapshot.running.tolist() if jobs[slot].id not in running]
        found = decide_respecting_limits(snapshot, None if limits is None else limits.add_job_usage(coming), decide)
        return found, memories[found.answer]


def require_power_cap_resources(power: PowerCap | None, cluster: Cluster) -> None:
    """Raise `InvalidSetting` if the power cap names an unknown resource."""
    for name, each in () if power is None else power.watts:
        if name not in cluster.resources:
            rule = f"must be a resource of the cluster: {', '.join(cluster.resources)}"
            raise InvalidSetting(("policy", "power", "watts", name), each, rule)


@lru_cache(maxsize=2)
def _apply_power_cap(cluster: Cluster, power: PowerCap) -> Cluster:
    """Return the cluster with a power cap: the same object in repeated calls."""
    return replace(cluster, power=power)


def _format_violations(report: CycleReport) -> str:
    return join_abbreviated(report.violations, _MAX_LISTED_VIOLATIONS, "; ")
