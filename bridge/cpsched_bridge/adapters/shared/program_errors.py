"""Translate the results of programs into the errors of the bridge."""

from __future__ import annotations

from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, ProgramMissing
from cpsched_sim.program_runner import ProgramFailure, ProgramResult

_ERRORS: dict[ProgramFailure, type[BackendError]] = {
    ProgramFailure.NOT_FOUND: ProgramMissing,
    ProgramFailure.CANNOT_RUN: ProgramMissing,
    ProgramFailure.TIMED_OUT: BackendTimeout,
    ProgramFailure.OUTPUT_TOO_LONG: BackendUnavailable,
}


def make_failure_error(result: ProgramResult) -> BackendError | None:
    """Return the error of a program that did not exit by itself, otherwise None."""
    return _ERRORS[result.failure](f"{result.command}: {result.complaint}") if result.failure is not None else None
