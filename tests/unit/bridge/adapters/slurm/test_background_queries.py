"""When the policy and the load of slurmctld are read, and what counts if Slurm does not respond."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cpsched_bridge.adapters.slurm.background_queries import (
    QUERY_INTERVAL_S,
    SDIAG_OUTPUT,
    BackgroundCommandOutput,
    BackgroundCommandQuery,
    ControllerLoad,
    ControllerLoadMonitor,
    PeriodicSitePolicyReader,
    parse_controller_load,
)
from tests.slurm_replies import ALL, CONFIG


class Played:
    """Answers that a test lays ready; None: still on their way."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_running = False
        self.ready: list[BackgroundCommandOutput | None] = []
        self.waited: list[bool] = []

    def start(self) -> None:
        self.asked += not self.is_running
        self.is_running = True

    def collect_output(self, wait: bool = False) -> BackgroundCommandOutput | None:
        if not self.is_running:
            return None
        self.waited.append(wait)
        found = self.ready.pop(0) if self.ready else None
        self.is_running = found is None
        return found

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
    assert (reader.poll(), reader.reading is None) == ([], False)
    clock.now_s += 301
    assert [reader.poll() for _ in range(2)] == [[], []]
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
    both = down | {"shares": "no"}
    asking.ready = [answers(lost) for lost in ({}, down, down, both, {"shares": "no"}, {})]
    told, most = [], []
    for _ in range(6):
        told.append(reader.poll())
        assert reader.reading is not None
        most.append(reader.reading.policy.qos["normal"].limits.jobs_a_user)
        clock.now_s += 301
    assert most == [2] * 6
    assert told == [
        [],
        ["site policy: qos is not available: sacctmgr: connection refused; the previous data is used"],
        [],
        ["site policy: shares is not available: no; the previous data is used"],
        ["site policy: qos is available again"],
        ["site policy: shares is available again"],
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


@pytest.mark.parametrize(
    ("found", "unavailable"),
    [
        (answers({"config": "refused"}), ["config is not available: refused", "missing data: config"]),
        (answers({"partitions": "refused"}), ["partitions is not available: refused", "missing data: partitions"]),
        (BackgroundCommandOutput({}, {}), ["missing data: config, partitions"]),
    ],
)
def test_names_missing_reply_that_is_required(
    reader: PeriodicSitePolicyReader, asking: Played, found: BackgroundCommandOutput, unavailable: list[str]
) -> None:
    asking.ready = [found]
    *named, missing = unavailable
    assert reader.poll() == [
        f"site policy: {each}; jobs are ordered by arrival until it is available"
        for each in (*named, f"snapshot is not available: {missing}")
    ]
    assert (reader.reading, reader.version) == (None, 0)


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
    missing = "/nowhere/sshare: cannot run: No such file or directory"
    assert (found.failures["a"].endswith("sinfo: error: no"), found.failures["b"]) == (True, missing)


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
    for _ in range(2):
        reader.poll()
    reader.start_reading()
    assert (asking.asked, reader.reading is None) == (1, False), "the next one is asked for when it is due"
    clock.now_s += 301
    reader.poll()
    assert asking.asked == 2


@pytest.mark.parametrize(
    ("first", "ahead_s"),
    [
        (answers(config=CONFIG.replace("00:05:00", "00:01:00")), 60.0),
        (answers(), 300.0),
        (answers(config=CONFIG.replace("00:05:00", "01:00:00")), 300.0),
        (answers({"qos": "refused"}), 30.0),
    ],
)
def test_refreshes_policy_at_site_period_or_sooner_after_failure(
    reader: PeriodicSitePolicyReader, asking: Played, clock: Clock, first: BackgroundCommandOutput, ahead_s: float
) -> None:
    asking.ready = [first]
    asked = []
    for step_s in (ahead_s - 0.1, 0.1, 0.0):
        reader.poll()
        asked.append(asking.asked)
        clock.now_s += step_s
    assert asked == [1, 1, 2]


def test_close_ends_running_commands(reader: PeriodicSitePolicyReader, asking: Played) -> None:
    closed: list[bool] = []
    asking.close = lambda: closed.append(True)  # type: ignore[method-assign]
    reader.close()
    assert closed == [True]


STARS = "*******************************************************\n"


def sdiag(threads=3, messages=0, queued=(), user="alice"):
    """What sdiag prints: of 22.05 without `queued`, of newer releases with it where the queue is on."""
    counts = "".join(
        f"\tREQUEST_JOB_INFO                        ( 2003) count:{9 + at} ave_time:312 total_time:9000"
        f"{'' if each is None else f'         queued:{each}      cycle_last:1      cycle_max:4      dropped:0'}\n"
        for at, each in enumerate(queued)
    )
    return (
        f"{STARS}sdiag output at Sun Nov 01 02:30:00 2026 (1793499000)\n"
        f"Data since      Sun Nov 01 00:00:00 2026 (1793491200)\n{STARS}"
        f"Server thread count:  {threads}\nRPC queue enabled:    {int(bool(queued))}\n"
        f"Agent queue size:     {messages}\n"
        "Agent count:          0\nAgent thread count:   0\nDBD Agent queue size: 12\n\n"
        "Jobs submitted: 40\nJobs started:   40\n\n"
        f"Remote Procedure Call statistics by message type\n{counts}"
        "\nRemote Procedure Call statistics by user\n"
        f"\t{user}           (    2001) count:7      ave_time:312    total_time:2184\n"
        "\nPending RPC statistics\n\tNo pending RPCs\n"
    )


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (sdiag(), ControllerLoad(3, 0)),
        (sdiag(messages=77), ControllerLoad(3, 77)),
        (sdiag(queued=(None, None)), ControllerLoad(3, 0)),
        (sdiag(queued=(5, 0, 30)), ControllerLoad(38, 0)),
        ("", None),
        ("No data available. Probably slurmctld is not working\n", None),
        (sdiag().replace("Agent queue size", "Agent queue"), None),
        (sdiag().replace("thread count:  3", "thread count:  many"), None),
        (sdiag().partition("Jobs submitted")[0], ControllerLoad(3, 0)),
    ],
)
def test_load_is_server_threads_and_pending_calls(text, load):
    assert parse_controller_load(text) == load


def test_user_name_cannot_forge_load():
    forged = "x\nServer thread count:  900\nAgent queue size:     900\n\tREQUEST_X ( 1) count:1 queued:900"
    assert parse_controller_load(sdiag(user=forged)) == ControllerLoad(3, 0)


class Scene:
    def __init__(self):
        self.now_s, self.asking = 0.0, Played()
        self.watch = ControllerLoadMonitor(self.asking, lambda: self.now_s)
        self.watch.poll()

    def answered(self, text):
        """What is said once slurmctld has answered so."""
        self.asking.ready = [
            BackgroundCommandOutput(
                {SDIAG_OUTPUT: text} if text else {}, {} if text else {SDIAG_OUTPUT: "no response within 10 s"}
            )
        ]
        found = self.watch.poll()
        assert not any(self.asking.waited), "no cycle waits for it"
        return found


@pytest.mark.parametrize(
    ("load", "busy"),
    [
        ({"threads": 99, "messages": 999}, ""),
        ({"threads": 100}, "slurmctld has 100 concurrent requests (limit: 100)"),
        ({"messages": 1000}, "slurmctld has 1,000 unsent messages (limit: 1,000)"),
    ],
)
def test_controller_is_busy_from_its_limits(load, busy):
    assert Scene().answered(sdiag(**load)) == busy


def test_polls_busy_controller_every_cycle_and_idle_one_rarely():
    scene = Scene()
    assert scene.asking.asked == 1
    scene.answered(sdiag())
    for scene.now_s in (1.0, QUERY_INTERVAL_S - 0.1):
        scene.watch.poll()
    assert scene.asking.asked == 1
    scene.now_s = QUERY_INTERVAL_S
    scene.watch.poll()
    assert scene.asking.asked == 2
    scene.answered(sdiag(threads=200))
    assert scene.asking.asked == 3


def test_starts_one_query_at_a_time_and_ignores_empty_reply():
    scene = Scene()
    scene.answered(sdiag(threads=200))
    assert scene.asking.asked == 2
    scene.now_s = 1000.0
    assert scene.watch.poll().startswith("slurmctld has 200")
    assert scene.asking.asked == 2
    assert scene.answered("").startswith("slurmctld has 200"), "no answer is no news"
    assert scene.answered(sdiag()) == ""
