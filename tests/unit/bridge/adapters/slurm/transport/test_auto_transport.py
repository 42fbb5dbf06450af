"""The transport that `auto` selects and reports, with a stand-in for pyslurm in its own process, or without pyslurm."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from cpsched_bridge.adapters.slurm.slurm_options import SELECTED_BY_OPTION, Options, connect, make_transport
from cpsched_bridge.adapters.slurm.transport.auto_transport import (
    MAX_CONSECUTIVE_TIMEOUTS,
    AutoSlurmTransport,
    is_pyslurm_installed,
)
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport
from cpsched_bridge.errors import (
    BackendDied,
    BackendError,
    BackendStartFailed,
    BackendStarting,
    BackendTimeout,
    BackendUnavailable,
    CommandRefused,
)


class Tried:
    """A pyslurm with prepared answers, in order."""

    starts_in_one_change = True
    child_starts = 1

    def __init__(
        self, *answers: str | BackendError, begins: str | BackendError | None = None, limit: Any = None
    ) -> None:
        self.answers, self.limit = list(answers), limit
        self.begins = begins
        self.closed = False

    def hello(self) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BackendError):
            raise answer
        return {"pyslurm": answer, "config": {"version": "26.05.5"}, "rate_limit": self.limit}

    def read_config(self) -> dict[str, Any]:
        return {"of": "pyslurm"}

    def not_ready_reason(self) -> str | None:
        if isinstance(self.begins, BackendError):
            raise self.begins
        return self.begins

    def transport_choice(self) -> tuple[str, str]:
        return "pyslurm", SELECTED_BY_OPTION

    def close(self) -> None:
        self.closed = True


class Commands(SlurmCliTransport):
    """The other one, without programs."""

    def read_config(self) -> dict[str, Any]:
        return {"of": "cli"}


def auto(tried: Tried, there: bool = True) -> AutoSlurmTransport:
    return AutoSlurmTransport(lambda: cast(PyslurmTransport, tried), lambda why: Commands(why=why), lambda: there)


def test_chooses_cli_at_once_without_pyslurm() -> None:
    chosen = auto(Tried("25.11.2"), there=False)
    assert chosen.transport_choice() == ("cli", "pyslurm is not installed")
    assert chosen.not_ready_reason() is None
    assert (chosen.read_config(), chosen.child_starts, chosen.starts_in_one_change) == ({"of": "cli"}, 0, False)


def test_chooses_working_pyslurm_at_first_call() -> None:
    tried = Tried("25.11.2")
    chosen = auto(tried)
    assert chosen.transport_choice() is None
    assert not chosen.starts_in_one_change
    assert chosen.read_config() == {"of": "pyslurm"}
    assert chosen.transport_choice() == ("pyslurm", "pyslurm 25.11.2 works with slurmctld 26.05.5")
    assert (chosen.child_starts, chosen.starts_in_one_change) == (1, True)
    chosen.close()
    assert tried.closed


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("26.11.0", "pyslurm 26.11.0 is newer than slurmctld"),
        (CommandRefused("hello: pyslurm cannot be imported: no libslurm"), "no libslurm"),
        (BackendStartFailed("the pyslurm process ended (exit status -11)"), "exit status -11"),
        (BackendDied("hello: the pyslurm process died (exit status -11)"), "died"),
    ],
)
def test_rejects_broken_pyslurm_and_reports_reason(answer: str | BackendError, words: str) -> None:
    tried = Tried(answer)
    chosen = auto(tried)
    assert chosen.read_config() == {"of": "cli"}
    found = chosen.transport_choice()
    assert found is not None
    assert found[0] == "cli"
    assert words in found[1]
    assert tried.closed


def test_chooses_cli_if_slurmctld_limits_calls() -> None:
    """Slurm's library sleeps within a call that is over the limit, so that the bridge would kill it halfway."""
    chosen = auto(Tried("25.11.2", limit={"bucket": 30, "per_s": 2.0}))
    assert chosen.read_config() == {"of": "cli"}
    why = "slurmctld limits this user's calls (rl_enable), and pyslurm does not respect the limit"
    assert chosen.transport_choice() == ("cli", why)


@pytest.mark.parametrize("error", [BackendStarting("imports"), BackendUnavailable("no controller")])
def test_chooses_no_transport_while_unknown(error: BackendError) -> None:
    tried = Tried(error, error, error, error, error, "25.11.2")
    chosen = auto(tried)
    for _ in range(5):
        with pytest.raises(type(error)):
            chosen.read()
        assert chosen.transport_choice() is None
    assert chosen.read_config() == {"of": "pyslurm"}


def test_rejects_pyslurm_after_repeated_timeouts() -> None:
    chosen = auto(Tried(BackendTimeout("hello: no answer")))
    for _ in range(MAX_CONSECUTIVE_TIMEOUTS - 1):
        with pytest.raises(BackendTimeout):
            chosen.read_config()
    assert chosen.read_config() == {"of": "cli"}
    assert chosen.transport_choice() == ("cli", f"hello: no answer ({MAX_CONSECUTIVE_TIMEOUTS} consecutive timeouts)")


def test_choice_is_final() -> None:
    tried = Tried("25.11.2")
    chosen = auto(tried)
    chosen.read_config()
    tried.answers = [BackendDied("gone")]
    assert chosen.read_config() == {"of": "pyslurm"}
    assert chosen.transport_choice() == ("pyslurm", "pyslurm 25.11.2 works with slurmctld 26.05.5")


def test_waits_for_import_whose_failure_decides() -> None:
    assert auto(Tried("25.11.2", begins="imports")).not_ready_reason() == "imports"
    chosen = auto(Tried("25.11.2", begins=BackendStartFailed("exit status 1")))
    assert chosen.not_ready_reason() is None
    assert chosen.transport_choice() == ("cli", "exit status 1")


def test_detects_failed_import_in_child_process() -> None:
    """Never in the bridge's own."""
    tried = PyslurmTransport(client=PyslurmClient("no_such_pyslurm"))
    chosen = AutoSlurmTransport(lambda: tried, lambda why: Commands(why=why), lambda: True)
    while chosen.not_ready_reason() is not None:
        pass
    assert chosen.read_config() == {"of": "cli"}
    found = chosen.transport_choice()
    assert found is not None
    assert "pyslurm cannot be imported" in found[1]
    assert not {"pyslurm", "no_such_pyslurm"} & sys.modules.keys()
    chosen.close()


def test_detects_pyslurm_without_importing_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    (tmp_path / "pyslurm").mkdir()
    (tmp_path / "pyslurm" / "__init__.py").write_text("raise SystemExit('imported')")
    assert is_pyslurm_installed()
    assert "pyslurm" not in sys.modules


def test_settings_may_select_transport() -> None:
    assert make_transport(Options(transport="cli")).transport_choice() == ("cli", SELECTED_BY_OPTION)
    assert make_transport(Options(transport="pyslurm")).transport_choice() == ("pyslurm", SELECTED_BY_OPTION)
    assert isinstance(make_transport(Options()), AutoSlurmTransport)


def test_all_programs_of_backend_share_call_budget() -> None:
    backend = connect(Options(transport="cli"))
    reading = backend._transport._records  # noqa: SLF001
    policy, load = backend._policy.asking, backend._load.asking  # noqa: SLF001
    assert policy.counted.__self__ is load.counted.__self__ is reading._budget  # noqa: SLF001
