"""Request a decision from the policy within a time limit, verify it, and prepare it for the journal.

The kernel's interval timer enforces the limit. Its signal raises an exception in the code that is running.

- The signal interrupts Python loops, sleeps, and waits for locks, sockets and child processes.
- The signal does not interrupt a call into compiled code (a kernel, a solver), because Python handles signals only
  after the call returns. The systemd watchdog kills a bridge that hangs in such a call.
- Time spent loading and compiling kernels does not count.
- Python handles signals only in the main thread. In any other thread, `run_within_time_limit` sets no limit; see
  `can_enforce_deadline`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import FrameType
from typing import Any, TypeVar

import structlog

from cpsched.errors import escape_controls, join_abbreviated, plugin_source_location
from cpsched.feasibility import verify
from cpsched.jit import compile_progress
from cpsched.model import Cluster, Decision, PowerCap, Snapshot
from cpsched.policy import Policy
from cpsched.site.admission import LimitCompliantDecision, decide_respecting_limits
from cpsched_bridge.cycle.cluster_state import Observed, build_cluster_state
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder, describe_failure, format_traceback
from cpsched_bridge.cycle.isolated_dispatcher import IsolatedDispatcher
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle_report import Decided
from cpsched_bridge.errors import DecisionTimeout, InvalidSetting, PolicyFailure
from cpsched_bridge.ports import Observation
from cpsched_bridge.store.round_records import decision_to_json, round_trip_json

FALLBACK_PATH = "fallback"
"""Name of the fallback's decision path in the journal and the metrics."""

_MAX_LISTED_VIOLATIONS = 3
"""Maximum number of violations listed in a message. Further violations are only counted."""


compile_progress.set_compile_clock(lambda: (time.perf_counter_ns(), time.process_time()))

T = TypeVar("T")

_SIGNAL_INTERVAL_S = 1.0
"""Seconds between repeated signals, which reach code that caught the exception or was compiling."""
_CLOCK_TOLERANCE_S = 0.01
"""Maximum seconds by which the timer's clock may be ahead of the bridge's clock."""


class _DeadlineExceeded(BaseException):
    """The exception that the signal raises, which `except Exception` does not catch."""


def can_enforce_deadline() -> bool:
    """Return whether `run_within_time_limit` can enforce its limit in this thread."""
    return threading.current_thread() is threading.main_thread()


def run_within_time_limit(limit_s: float, work: Callable[[], T]) -> T:
    """Return the result of `work`. Raise `DecisionTimeout` after `limit_s` seconds.

    Time spent compiling kernels does not count. The previous signal handler and timer are restored afterwards.
    """
    if not can_enforce_deadline():
        return work()
    armed = True
    began_s, compiled_ns = time.monotonic(), compile_progress.compile_seconds()[0]

    def on_alarm(number: int, frame: FrameType | None) -> None:
        if not armed or compile_progress.is_compiling():
            return
        excused_s = (compile_progress.compile_seconds()[0] - compiled_ns) / 1e9
        if time.monotonic() - began_s - excused_s >= limit_s - _CLOCK_TOLERANCE_S:
            raise _DeadlineExceeded

    handler = signal.signal(signal.SIGALRM, on_alarm)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _SIGNAL_INTERVAL_S)
    try:
        result = work()
        armed = False
        return result
    except _DeadlineExceeded as overdue:
        armed = False
        place = plugin_source_location(overdue)
        where = f" ({escape_controls(str(place))})" if place is not None else ""
        raise DecisionTimeout(f"no decision within {limit_s:g} s{where}") from None
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)  # None: not set in Python
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s - (time.monotonic() - began_s)), every_s)


def call_policy(limit_s: float, work: Callable[[], T], kind: str = "decision_failed") -> T:
    """Return the result of `work`, which calls the policy.

    Raise `PolicyFailure` of this `kind` if `work` raises anything, and of kind `decision_timeout` if `work` takes more
    than `limit_s` seconds. `SystemExit`, `KeyboardInterrupt` and `CompilationCancelled` propagate, because they end the
    program.
    """
    try:
        return run_within_time_limit(limit_s, work)
    except (SystemExit, KeyboardInterrupt, compile_progress.CompilationCancelled, PolicyFailure):
        raise
    except DecisionTimeout as error:
        raise PolicyFailure("decision_timeout", str(error)) from error
    except BaseException as error:  # includes exceptions outside `Exception`, such as asyncio.CancelledError
        structlog.get_logger("bridge").error(kind, exception=format_traceback(error))
        raise PolicyFailure(kind, describe_failure(error)) from error


class DecisionFailure(PolicyFailure):
    """A policy failure, with how far the decision got."""

    def __init__(self, failure: PolicyFailure, attempt: Decided) -> None:
        super().__init__(failure.kind, str(failure))
        self.attempt = attempt


@dataclass(slots=True)
class _Attempt:
    """How far a decision got. A time limit may interrupt it anywhere."""

    snapshot: Snapshot | None = None
    limited: Mapping[int, str] = field(default_factory=dict)
    recorded: Any = None


@dataclass(frozen=True, slots=True)
class VerifiedDecider:
    """A component that requests and verifies decisions, each within `limit_s` seconds."""

    policy: Policy
    limit_s: float
    pace: LoopClock
    power: PowerCap | None = None
    """The configured power cap."""
    is_fallback: bool = False
    train: Callable[[], None] = lambda: None
    """Trains the policy before each decision."""

    def not_ready_reason(self) -> str | None:
        """Return the start-up step of the dispatcher's process, or None if it is ready."""
        dispatcher = self.policy.dispatcher
        return dispatcher.not_ready_reason() if isinstance(dispatcher, IsolatedDispatcher) else None

    def decide(self, observed: Observed, recorder: CycleRecorder) -> Decided:
        """Return a verified decision.

        Raise `DecisionFailure` if the policy raises an exception, exceeds its time limit, or returns a decision that is
        invalid or cannot be recorded.
        """
        attempt = _Attempt()
        try:
            self.train()
            return call_policy(self.limit_s, lambda: self._make_decision(observed, recorder, attempt))
        except PolicyFailure as failure:
            reached = Decided(
                snapshot=attempt.snapshot,
                limited=attempt.limited,
                recorded=attempt.recorded,
                fallback=self.is_fallback,
                policy_failure=failure.kind,
            )
            raise DecisionFailure(failure, reached) from failure

    def _make_decision(self, observed: Observed, recorder: CycleRecorder, attempt: _Attempt) -> Decided:
        with recorder.measure("decide"):
            state = build_cluster_state(
                observed.observation, observed.entries, observed.role.mode == "control", observed.backoff
            )
            if self.power is not None:
                state = replace(state, cluster=_apply_power_cap(state.cluster, self.power))
            attempt.snapshot = self.policy.add_estimates(state)
            compliant = self._decide_within_run_limits(attempt.snapshot, observed.observation)
            snapshot, decision = compliant.snapshot, compliant.decision
            attempt.snapshot, attempt.limited = snapshot, compliant.limited
        if not isinstance(decision, Decision):
            raise PolicyFailure("decision_failed", f"the dispatcher returned {type(decision).__name__}, not a Decision")
        if self.is_fallback:
            decision = replace(decision, effort=replace(decision.effort, path=FALLBACK_PATH))

        with recorder.measure("verify"):
            violations = verify(decision, snapshot)
        if violations:
            with contextlib.suppress(Exception):  # a start of an unknown job cannot be recorded
                attempt.recorded = decision_to_json(decision, snapshot)
            raise PolicyFailure("rule_broken", join_abbreviated(violations, _MAX_LISTED_VIOLATIONS, "; "))

        is_replayable = compliant.memory is not None or not self.policy.dispatcher_learns
        attempt.recorded = decision_to_json(decision, snapshot)
        starts = decision.starts_by_job(snapshot)
        if len(starts) < len(decision.starts):
            raise PolicyFailure("rule_broken", "the decision starts a job twice")
        return Decided(
            snapshot=snapshot,
            decision=decision,
            starts=starts,
            limited=compliant.limited,
            recorded=attempt.recorded,
            memory=compliant.memory,
            replayable=is_replayable,
            fallback=self.is_fallback,
        )

    def _decide_within_run_limits(self, snapshot: Snapshot, observation: Observation) -> LimitCompliantDecision:
        """Return a decision within the site's limits. Starting jobs count as running."""

        def decide(queue: Snapshot) -> Decision:
            began_s = self.pace.monotonic_s()
            decision = self.policy.decide(queue, "plan")
            self.policy.took(self.pace.monotonic_s() - began_s)
            return decision

        running, limits = {each.job.id for each in observation.running}, observation.limits
        jobs = snapshot.table.jobs
        coming = [jobs[slot].id for slot in snapshot.running.tolist() if jobs[slot].id not in running]
        return decide_respecting_limits(
            snapshot,
            None if limits is None else limits.add_job_usage(coming),
            decide,
            lambda: round_trip_json(self.policy.memory()),
        )


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
