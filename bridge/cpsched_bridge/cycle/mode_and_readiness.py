"""Determine whether the bridge may act: readiness checks, mode, and pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cpsched_bridge.cycle.circuit_breaker import CircuitBreaker
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.leader_election import LeaderElection
from cpsched_bridge.cycle_report import Mode
from cpsched_bridge.errors import BackendError, NotReady
from cpsched_bridge.ports import Backend, ReadinessCheck
from cpsched_bridge.store.lock_and_request_files import PauseFile
from cpsched_bridge.telemetry.loop_health import SystemdNotifier

CHECKS_ANSWERED = "checks"
"""Name of the check that fails if the other checks could not run."""


@dataclass(slots=True)
class CurrentBridgeMode:
    """The current mode. A pause does not affect shadow mode, which only reads."""

    configured: Literal["shadow", "advise", "control"]
    pause: PauseFile
    leader_election: LeaderElection
    breaker: CircuitBreaker
    systemd: SystemdNotifier
    trouble: Callable[[], str | None] = lambda: None
    """Returns why the bridge must pause now, or None. The pause ends when the reason does."""
    _last: Mode | None = field(default=None, init=False)
    """The last reported mode."""
    _unwritten_pause: str = field(default="", init=False)
    """The reason for a pause that is not yet on disk, or "" if there is none."""

    def choose_mode(self) -> Mode:
        """Return the mode that applies now."""
        if self.configured == "shadow":
            return "shadow"
        return self.configured if self.pause_reason() is None else "paused"

    @property
    def wants_leadership(self) -> bool:
        """Whether the bridge would be in control or advise mode if it were the only one."""
        return self.configured != "shadow" and self._own_pause_reason() is None

    def pause_reason(self) -> str | None:
        """Return why the bridge is paused, or None."""
        return self._own_pause_reason() or self.leader_election.standby_reason()

    def _own_pause_reason(self) -> str | None:
        return self._unwritten_pause or self.pause.read_reason() or self.trouble()

    def report_mode_change(self, mode: Mode, recorder: CycleRecorder) -> str:
        """Report a change of mode. Reset the circuit breaker for control or advise mode.

        Return why the bridge is paused, or "" if it is not.
        """
        paused = (self.pause_reason() or "") if mode == "paused" else ""
        if mode != self._last:
            self._last = mode
            if mode in ("advise", "control"):
                self.breaker.reset()
            recorder.add_event("mode", " ".join([mode, self.pause_reason() or ""]).strip())
            self.systemd.notify(f"STATUS={mode}")
        return paused

    def pause_if_breaker_tripped(self, mode: Mode, now_s: float, recorder: CycleRecorder) -> None:
        """Pause the bridge from the next cycle if the circuit breaker has tripped.

        Raise `OSError` if the pause cannot be written to disk. The bridge pauses nevertheless, and the next call
        retries the write.
        """
        verdict = self.breaker.trip_reason(now_s)
        if verdict is not None and mode in ("advise", "control"):
            recorder.add_event("circuit_breaker_tripped", verdict)
            self._unwritten_pause = f"circuit breaker: {verdict}; run `cpsched resume` to resume"
        if self._unwritten_pause:
            self.pause.pause(self._unwritten_pause)
            self._unwritten_pause = ""


@dataclass(slots=True)
class PeriodicReadinessChecks:
    """A runner of the `cpsched doctor` checks, every `every_s` seconds (0: never)."""

    backend: Backend
    every_s: float
    now_s: float
    mode: str = "control"
    """The configured mode. Checks for other modes are omitted."""
    _failing: dict[str, str] = field(default_factory=dict, init=False)

    def run_if_due(self, now_s: float, recorder: CycleRecorder) -> Sequence[ReadinessCheck] | None:
        """Run the checks if they are due at monotonic time `now_s`, and return their results.

        Report an event when a check starts to fail, when its text changes, and when it passes again. A failed check
        does not fail the cycle, so that the bridge schedules jobs for as long as possible.
        """
        if not self.every_s or now_s - self.now_s < self.every_s:
            return None
        self.now_s = now_s
        checks = self._run_checks()
        failing = {check.name: _format_check(check) for check in checks if not check.ok}
        for name in failing:
            if failing[name] != self._failing.get(name):
                recorder.add_event("check_failed", f"{name}: {failing[name]}")
        for name in self._failing.keys() - failing.keys():
            recorder.add_event("check_recovered", name)
        self._failing = failing
        return checks

    def _run_checks(self) -> Sequence[ReadinessCheck]:
        try:
            return [
                ReadinessCheck(CHECKS_ANSWERED, True, "the cluster responds"),
                *select_checks_for_mode(self.backend.run_checks(), self.mode),
            ]
        except BackendError as error:
            return [ReadinessCheck(CHECKS_ANSWERED, False, str(error))]


def select_checks_for_mode(checks: Iterable[ReadinessCheck], mode: str) -> list[ReadinessCheck]:
    """Return the checks for a mode.

    For shadow mode, return all checks, and make those for advise mode optional.
    """
    if mode == "shadow":
        return [replace(check, required=False) if check.mode == "advise" else check for check in checks]
    return [check for check in checks if check.mode in ("", mode)]


def require_ready(checks: Iterable[ReadinessCheck], mode: str = "control") -> None:
    """Raise `NotReady` with the failed required checks and their fixes, if any."""
    broken = [check for check in checks if check.required and not check.ok]
    if broken:
        lines = (f"  {check.name}: {_format_check(check)}" for check in broken)
        raise NotReady(f"mode={mode}: these checks must pass:\n" + "\n".join(lines))


def _format_check(check: ReadinessCheck) -> str:
    return f"{check.detail}; {check.fix}".rstrip("; ")
