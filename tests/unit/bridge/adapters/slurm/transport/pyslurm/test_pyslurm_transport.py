"""The choice between Slurm's commands and pyslurm, which is measured once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from cpsched_bridge.adapters.slurm import slurm_options
from cpsched_bridge.adapters.slurm.slurm_options import Options
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import (
    START_LIMIT_S,
    PyslurmTransport,
    TransportTrial,
)
from cpsched_bridge.errors import BackendError, BackendStartFailed, BackendTimeout


@dataclass
class Transport:
    """A stand-in whose readings take a given time."""

    reading_s: float = 1.0
    failure: BackendError | None = None
    starting: str | None = None
    why: str = ""
    reads: int = 0
    is_closed: bool = False

    def not_ready_reason(self) -> str | None:
        return self.starting

    def read(self) -> None:
        self.reads += 1
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        self.is_closed = True


class Trial:
    """A trial of stand-ins, with a clock that only the test moves."""

    def __init__(self, commands_s: float = 2.0, **pyslurm: Any) -> None:
        self.commands, self.pyslurm = Transport(commands_s), Transport(**pyslurm)
        self.now_s = 0.0
        self.trial = TransportTrial(
            cast(SlurmCliTransport, self.commands), cast(PyslurmTransport, self.pyslurm), lambda: self.now_s
        )

    def choose(self, jobs: int = 10_000) -> object:
        return self.trial.choose_transport(jobs)


@pytest.mark.parametrize(
    ("commands_s", "pyslurm_s", "chosen"), [(2.0, 4.0, "cli"), (4.0, 2.0, "pyslurm"), (2.0, 2.0, "cli")]
)
def test_chooses_faster_transport_and_commands_if_equal(commands_s: float, pyslurm_s: float, chosen: str) -> None:
    trial = Trial(commands_s, reading_s=pyslurm_s)
    assert trial.choose() is None, "the first reading with pyslurm does not count"
    winner, loser = (trial.commands, trial.pyslurm) if chosen == "cli" else (trial.pyslurm, trial.commands)
    assert trial.choose() is winner
    figures = f"one reading of 10,000 jobs took {commands_s:.2f} s with cli and {pyslurm_s:.2f} s with pyslurm"
    assert (winner.why, trial.pyslurm.reads) == (f"auto: {figures}", 2)
    assert (winner.is_closed, loser.is_closed) == (False, True)


@pytest.mark.parametrize(
    ("jobs", "failure", "why"),
    [
        (999, None, "999 jobs; pyslurm is tried for at least 1,000"),
        (10_000, BackendTimeout("no response"), "pyslurm failed: no response"),
        (10_000, BackendStartFailed("exit status 1"), "pyslurm failed: exit status 1"),
    ],
)
def test_few_jobs_or_failure_of_pyslurm_choose_commands(jobs: int, failure: BackendError | None, why: str) -> None:
    trial = Trial(failure=failure)
    assert trial.choose(jobs) is trial.commands
    assert (trial.commands.why, trial.pyslurm.is_closed) == (f"auto: {why}", True)
    assert failure is not None or trial.pyslurm.reads == 0


def test_pyslurm_has_limited_time_to_start() -> None:
    trial = Trial(starting="importing")
    for now_s, chosen in ((0.0, None), (START_LIMIT_S - 1, None), (START_LIMIT_S, trial.commands)):
        trial.now_s = now_s
        assert trial.choose() is chosen
    assert (trial.commands.why, trial.pyslurm.reads) == ("auto: pyslurm was not ready within 120 s", 0)


@pytest.mark.parametrize(
    ("option", "installed", "info", "tries"),
    [
        ("auto", False, "cli: auto: pyslurm is not installed", False),
        ("auto", True, "cli: auto: pyslurm has not been tried yet", True),
        ("cli", True, "cli: selected by options.transport", False),
        ("pyslurm", True, "pyslurm: selected by options.transport", False),
    ],
)
def test_only_auto_with_pyslurm_tries_both(
    monkeypatch: pytest.MonkeyPatch, option: Any, installed: bool, info: str, tries: bool
) -> None:
    monkeypatch.setattr(slurm_options, "is_pyslurm_installed", lambda: installed)
    backend = slurm_options.connect(Options(transport=option, site_policy=False))
    assert (backend.transport_info, backend.transport_trial is not None) == (info, tries)
    backend.close()
