"""When the policy is read. If Slurm does not respond, the last known policy is used."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cpsched_bridge.adapters.slurm.policy.site_policy_commands import BackgroundCommandOutput, BackgroundCommandQuery
from cpsched_bridge.adapters.slurm.policy.site_policy_reader import PeriodicSitePolicyReader
from tests.slurm_replies import ALL, CONFIG


class Played:
    """Answers that a test lays ready; None: still on their way."""

    def __init__(self) -> None:
        self.asked = 0
        self.ready: list[BackgroundCommandOutput | None] = []
        self.waited: list[bool] = []

    def start(self) -> None:
        self.asked += 1

    def collect_output(self, wait: bool = False) -> BackgroundCommandOutput | None:
        self.waited.append(wait)
        return self.ready.pop(0) if self.ready else None

    def close(self) -> None:
        pass


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asking() -> Played:
    return Played()


@pytest.fixture
def reader(asking: Played, clock: Clock) -> PeriodicSitePolicyReader:
    return PeriodicSitePolicyReader(asking, clock)


def answers(without: Mapping[str, str] | None = None, **changed: str) -> BackgroundCommandOutput:
    lost = without or {}
    return BackgroundCommandOutput({name: text for name, text in (ALL | changed).items() if name not in lost}, lost)


def test_waits_for_first_reading_only(reader: PeriodicSitePolicyReader, asking: Played, clock: Clock) -> None:
    asking.ready = [answers(), None, answers()]
    assert reader.poll() == []
    assert reader.reading is not None
    clock.now_s += 301
    assert reader.poll() == []
    assert reader.poll() == []
    assert asking.waited == [True, False, False]


def test_version_changes_only_with_new_policy(reader: PeriodicSitePolicyReader, asking: Played, clock: Clock) -> None:
    asking.ready = [answers(), answers(), answers(config=CONFIG.replace("= 1000\n", "= 2000\n"))]
    versions = []
    for _ in range(3):
        reader.poll()
        versions.append(reader.version)
        clock.now_s += 301
    assert versions == [1, 1, 2]


def test_reports_lost_reply_once_and_uses_previous_one(
    reader: PeriodicSitePolicyReader, asking: Played, clock: Clock
) -> None:
    down = {"qos": "sacctmgr: connection refused"}
    asking.ready = [answers(), answers(down), answers(down), answers()]
    told, most = [], []
    for _ in range(4):
        told += reader.poll()
        assert reader.reading is not None
        most.append(reader.reading.policy.qos["normal"].limits.jobs_a_user)
        clock.now_s += 301
    assert most == [2, 2, 2, 2]
    assert told == [
        "site policy: qos is not available: sacctmgr: connection refused; the previous data is used",
        "site policy: qos is available again",
    ]


def test_reply_of_unknown_form_keeps_previous_policy(
    reader: PeriodicSitePolicyReader, asking: Played, clock: Clock
) -> None:
    asking.ready = [answers(), answers(state="slurm_load_assoc_mgr_info: Invalid protocol")]
    reader.poll()
    before = reader.reading
    clock.now_s += 301
    (told,) = reader.poll()
    assert "snapshot is not available: scontrol show assoc_mgr: the root account is missing" in told
    assert reader.reading is before


def test_orders_jobs_by_arrival_without_any_reply(reader: PeriodicSitePolicyReader, asking: Played) -> None:
    asking.ready = [
        BackgroundCommandOutput({}, {"config": "scontrol: No such file", "partitions": "scontrol: No such file"})
    ]
    told = reader.poll()
    assert any("jobs are ordered by arrival until it is available" in line for line in told)
    assert reader.reading is None


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


def test_runs_commands_in_parallel_and_tries_fallback(tmp_path: Path) -> None:
    failing = python(f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); raise SystemExit(1)")
    commands = BackgroundCommandQuery(30.0, {"a": (python("print('one')"),), "b": (failing, python("print(2)"))})
    commands.start()
    found = commands.collect_output(wait=True)
    assert found == BackgroundCommandOutput({"a": "one\n", "b": "2\n"}, {})
    commands.start()
    assert commands.collect_output(wait=True) == found
    assert (tmp_path / "asked").read_text() == "x", "what failed before is not asked again"


def test_caller_variables_do_not_reach_policy_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """They could select another cluster, other columns, another language or another time zone."""
    caller = {
        "SLURM_CLUSTERS": "other", "SLURM_TIME_FORMAT": "relative", "SACCTMGR_FORMAT": "Name", "SSHARE_FORMAT": "User",
        "SPRIO_CLUSTERS": "other", "SCANCEL_INTERACTIVE": "1", "LC_ALL": "de_DE",
        "TZ": "Asia/Tokyo",
    }  # fmt: skip
    for name, value in caller.items():
        monkeypatch.setenv(name, value)
    program = python(f"import os; print([os.environ.get(name) for name in {list(caller)}])")
    commands = BackgroundCommandQuery(30.0, {"policy": (program,)})
    commands.start()
    found = commands.collect_output(wait=True)
    expected = [None, "%s", None, None, None, None, "C", "UTC0"]
    assert found == BackgroundCommandOutput({"policy": f"{expected}\n"}, {})


def test_reports_first_line_of_failed_or_missing_command() -> None:
    failing = python("import sys; print('sinfo: error: no', file=sys.stderr); sys.exit(3)")
    commands = BackgroundCommandQuery(30.0, {"a": (failing,), "b": (("/nowhere/sshare",),)})
    commands.start()
    found = commands.collect_output(wait=True)
    assert found is not None
    assert found.failures["a"].endswith("sinfo: error: no")
    assert found.failures["b"] == "/nowhere/sshare: cannot run: No such file or directory"


def test_hung_command_delays_nobody() -> None:
    commands = BackgroundCommandQuery(0.3, {"a": (("sleep", "600"), ("echo",))})
    commands.start()
    assert commands.collect_output() is None
    found = commands.collect_output(wait=True)
    assert found == BackgroundCommandOutput({}, {"a": "sleep 600: no response within 0.3 s; killed"})


def test_starts_first_reading_only_once(reader: PeriodicSitePolicyReader, asking: Played, clock: Clock) -> None:
    for _ in range(3):
        reader.start_reading()
    assert asking.asked == 1
    asking.ready = [None, answers()]
    reader.poll()
    reader.poll()
    assert (asking.asked, reader.reading is not None) == (1, True)
    reader.start_reading()
    assert asking.asked == 1, "the next snapshot is asked for when it is due"
    clock.now_s += 301
    reader.poll()
    assert asking.asked == 2


@pytest.mark.parametrize("name", ["config", "partitions"])
def test_names_missing_reply_that_is_required(reader: PeriodicSitePolicyReader, asking: Played, name: str) -> None:
    asking.ready = [answers({name: "refused"})]
    told = reader.poll()
    assert told == [
        f"site policy: {name} is not available: refused; jobs are ordered by arrival until it is available",
        f"site policy: snapshot is not available: missing data: {name}; "
        "jobs are ordered by arrival until it is available",
    ]
    assert (reader.reading, reader.version) == (None, 0)


def test_names_all_missing_replies(reader: PeriodicSitePolicyReader, asking: Played) -> None:
    asking.ready = [BackgroundCommandOutput({}, {})]
    assert reader.poll() == [
        "site policy: snapshot is not available: missing data: config, partitions; "
        "jobs are ordered by arrival until it is available"
    ]


@pytest.mark.parametrize(("ahead_s", "asked"), [(29.9, 1), (30.0, 2)])
def test_retries_failed_reading_after_30_seconds(
    reader: PeriodicSitePolicyReader, asking: Played, clock: Clock, ahead_s: float, asked: int
) -> None:
    asking.ready = [answers({"qos": "refused"})]
    reader.poll()
    clock.now_s += ahead_s
    reader.poll()
    assert asking.asked == asked


@pytest.mark.parametrize(("period", "ahead_s"), [("00:01:00", 60.0), ("00:05:00", 300.0), ("01:00:00", 300.0)])
def test_refreshes_policy_at_site_period_of_at_most_300_seconds(
    reader: PeriodicSitePolicyReader, asking: Played, clock: Clock, period: str, ahead_s: float
) -> None:
    asking.ready = [answers(config=CONFIG.replace("00:05:00", period))]
    reader.poll()
    clock.now_s += ahead_s - 0.1
    reader.poll()
    assert asking.asked == 1
    clock.now_s += 0.1
    reader.poll()
    assert asking.asked == 2


def test_close_ends_running_commands(reader: PeriodicSitePolicyReader, asking: Played) -> None:
    closed: list[bool] = []
    asking.close = lambda: closed.append(True)  # type: ignore[method-assign]
    reader.close()
    assert closed == [True]


def test_reports_each_loss_and_recovery_when_it_occurs(
    reader: PeriodicSitePolicyReader, asking: Played, clock: Clock
) -> None:
    asking.ready = [
        answers(),
        answers({"qos": "no"}),
        answers({"qos": "no", "shares": "no"}),
        answers({"shares": "no"}),
    ]
    told = []
    for _ in range(5):
        told.append([line.removeprefix("site policy: ").partition(":")[0] for line in reader.poll()])
        clock.now_s += 301
        asking.ready = asking.ready or [answers()]
    assert told == [
        [],
        ["qos is not available"],
        ["shares is not available"],
        ["qos is available again"],
        ["shares is available again"],
    ]
