"""When the policy is read, and that no answer means the last known one."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cpsched_bridge.adapters.slurm.policy.policy_commands import SitePolicyCommands, SitePolicyOutput
from cpsched_bridge.adapters.slurm.policy.policy_reader import SitePolicyReader
from tests.unit.bridge.adapters.slurm.policy.replies import ALL, CONFIG


class Played:
    """Answers that a test lays ready; None: still on their way."""

    def __init__(self) -> None:
        self.asked = 0
        self.ready: list[SitePolicyOutput | None] = []
        self.waited: list[bool] = []

    def start(self) -> None:
        self.asked += 1

    def collect_output(self, wait: bool = False) -> SitePolicyOutput | None:
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
def reader(asking: Played, clock: Clock) -> SitePolicyReader:
    return SitePolicyReader(asking, clock)


def answers(without: Mapping[str, str] | None = None, **changed: str) -> SitePolicyOutput:
    lost = without or {}
    return SitePolicyOutput({name: text for name, text in (ALL | changed).items() if name not in lost}, lost)


def test_the_first_reading_is_waited_for_and_later_ones_never(
    reader: SitePolicyReader, asking: Played, clock: Clock
) -> None:
    asking.ready = [answers(), None, answers()]
    assert reader.poll() == []
    assert reader.picture is not None
    clock.now_s += 301
    assert reader.poll() == []
    assert reader.poll() == []
    assert asking.waited == [True, False, False]


def test_the_version_grows_only_with_a_new_picture(reader: SitePolicyReader, asking: Played, clock: Clock) -> None:
    asking.ready = [answers(), answers(), answers(config=CONFIG.replace("= 1000\n", "= 2000\n"))]
    versions = []
    for _ in range(3):
        reader.poll()
        versions.append(reader.version)
        clock.now_s += 301
    assert versions == [1, 1, 2]


def test_a_lost_answer_is_told_once_and_the_last_one_stands_in(
    reader: SitePolicyReader, asking: Played, clock: Clock
) -> None:
    down = {"qos": "sacctmgr: connection refused"}
    asking.ready = [answers(), answers(down), answers(down), answers()]
    told, most = [], []
    for _ in range(4):
        told += reader.poll()
        assert reader.picture is not None
        most.append(reader.picture.site.qos["normal"].limits.jobs_a_user)
        clock.now_s += 301
    assert most == [2, 2, 2, 2]
    assert told == [
        "site policy: no qos: sacctmgr: connection refused; the last known stands in",
        "site policy: qos is read again",
    ]


def test_an_answer_of_an_unknown_form_leaves_the_picture_as_it_was(
    reader: SitePolicyReader, asking: Played, clock: Clock
) -> None:
    asking.ready = [answers(), answers(state="slurm_load_assoc_mgr_info: Invalid protocol")]
    reader.poll()
    before = reader.picture
    clock.now_s += 301
    (told,) = reader.poll()
    assert "no picture: scontrol show assoc_mgr: shows no root account" in told
    assert reader.picture is before


def test_without_any_answer_at_all_jobs_go_by_arrival(reader: SitePolicyReader, asking: Played) -> None:
    asking.ready = [SitePolicyOutput({}, {"config": "scontrol: No such file", "partitions": "scontrol: No such file"})]
    told = reader.poll()
    assert any("jobs go by arrival until there is one" in line for line in told)
    assert reader.picture is None


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


def test_commands_are_run_together_and_what_stands_in_is_tried(tmp_path: Path) -> None:
    failing = python(f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); raise SystemExit(1)")
    commands = SitePolicyCommands(30.0, {"a": (python("print('one')"),), "b": (failing, python("print(2)"))})
    commands.start()
    found = commands.collect_output(wait=True)
    assert found == SitePolicyOutput({"a": "one\n", "b": "2\n"}, {})
    commands.start()
    assert commands.collect_output(wait=True) == found
    assert (tmp_path / "asked").read_text() == "x", "what failed before is not asked again"


def test_a_command_that_fails_or_is_not_there_is_told_by_its_first_line() -> None:
    failing = python("import sys; print('sinfo: error: no', file=sys.stderr); sys.exit(3)")
    commands = SitePolicyCommands(30.0, {"a": (failing,), "b": (("/nowhere/sshare",),)})
    commands.start()
    found = commands.collect_output(wait=True)
    assert found is not None
    assert found.failures["a"].endswith("sinfo: error: no")
    assert found.failures["b"] == "/nowhere/sshare: No such file or directory"


def test_a_command_that_hangs_is_ended_at_the_deadline_and_nobody_waits_for_it() -> None:
    commands = SitePolicyCommands(0.3, {"a": (python("import time; time.sleep(600)"),)})
    commands.start()
    process = commands._running["a"].process  # noqa: SLF001
    assert commands.collect_output() is None
    found = commands.collect_output(wait=True)
    assert found == SitePolicyOutput({}, {"a": "no answer in 0.3 s"})
    assert process.poll() is not None


def test_each_command_that_begins_is_counted_and_may_take_longer_for_it() -> None:
    """Also the one that stands in for another; what is not there makes no call."""
    counted: list[Sequence[str]] = []

    def count(command: Sequence[str]) -> float:
        counted.append(command)
        return 600.0

    failing, slow = python("raise SystemExit(1)"), python("import time; time.sleep(0.2)")
    asked = {"a": (failing, slow), "b": (("/nowhere/sshare",),)}
    commands = SitePolicyCommands(0.0, asked, count)
    commands.start()
    found = commands.collect_output(wait=True)
    assert found is not None
    assert (found.texts, list(found.failures)) == ({"a": ""}, ["b"])
    assert counted == [list(failing), list(slow)]


def test_closing_leaves_no_process_behind() -> None:
    commands = SitePolicyCommands(60.0, {"a": (python("import time; time.sleep(600)"),)})
    commands.start()
    process = commands._running["a"].process  # noqa: SLF001
    commands.close()
    assert process.poll() is not None
    time.sleep(0)


def test_what_was_begun_is_not_begun_again_and_after_a_picture_there_is_nothing_to_begin(
    reader: SitePolicyReader, asking: Played, clock: Clock
) -> None:
    for _ in range(3):
        reader.start_reading()
    assert asking.asked == 1
    asking.ready = [None, answers()]
    reader.poll()
    reader.poll()
    assert (asking.asked, reader.picture is not None) == (1, True)
    reader.start_reading()
    assert asking.asked == 1, "the next picture is asked for when it is due"
    clock.now_s += 301
    reader.poll()
    assert asking.asked == 2


@pytest.mark.parametrize("name", ["config", "partitions"])
def test_an_answer_that_nothing_can_be_made_without_is_named(
    reader: SitePolicyReader, asking: Played, name: str
) -> None:
    asking.ready = [answers({name: "refused"})]
    told = reader.poll()
    assert told == [
        f"site policy: no {name}: refused; jobs go by arrival until there is one",
        f"site policy: no picture: no {name}; jobs go by arrival until there is one",
    ]
    assert (reader.picture, reader.version) == (None, 0)


def test_all_answers_that_are_missing_are_named(reader: SitePolicyReader, asking: Played) -> None:
    asking.ready = [SitePolicyOutput({}, {})]
    assert reader.poll() == [
        "site policy: no picture: no config and no partitions; jobs go by arrival until there is one"
    ]


@pytest.mark.parametrize(("ahead_s", "asked"), [(29.9, 1), (30.0, 2)])
def test_a_reading_that_failed_is_tried_again_after_half_a_minute(
    reader: SitePolicyReader, asking: Played, clock: Clock, ahead_s: float, asked: int
) -> None:
    asking.ready = [answers({"qos": "refused"})]
    reader.poll()
    clock.now_s += ahead_s
    reader.poll()
    assert asking.asked == asked


@pytest.mark.parametrize(("period", "ahead_s"), [("00:01:00", 60.0), ("00:05:00", 300.0), ("01:00:00", 300.0)])
def test_a_picture_is_renewed_at_the_pace_of_the_site_but_every_five_minutes_at_least(
    reader: SitePolicyReader, asking: Played, clock: Clock, period: str, ahead_s: float
) -> None:
    asking.ready = [answers(config=CONFIG.replace("00:05:00", period))]
    reader.poll()
    clock.now_s += ahead_s - 0.1
    reader.poll()
    assert asking.asked == 1
    clock.now_s += 0.1
    reader.poll()
    assert asking.asked == 2


def test_what_is_on_its_way_ends_with_the_reader(reader: SitePolicyReader, asking: Played) -> None:
    closed: list[bool] = []
    asking.close = lambda: closed.append(True)  # type: ignore[method-assign]
    reader.close()
    assert closed == [True]


def test_what_is_lost_and_what_is_back_are_told_when_they_are(
    reader: SitePolicyReader, asking: Played, clock: Clock
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
    assert told == [[], ["no qos"], ["no shares"], ["qos is read again"], ["shares is read again"]]
