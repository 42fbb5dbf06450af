"""Commands through scontrol: its input for each command, and the check of the job before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.transport import JobOrder, OrderKind
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import NODE_NAME_PATTERN
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import StartOrder, StartSettings, UndoOrder, Victim, VictimMode
from tests.builders import a_job, a_slurm_job
from tests.unit.bridge.adapters.slurm.transport.fake_scontrol import complaining, put_scancel, put_scontrol

ENOUGH_S = 20.0
JOB = a_slurm_job(state_reason="JobHeldAdmin", priority=0, admin_comment="bridge:wait", comment="bridge:wait")


class Jobs:
    """Jobs by number, as a fresh look shows them."""

    def __init__(self, **facts: dict[str, Any]) -> None:
        self.facts = {int(name.removeprefix("j")): fact for name, fact in facts.items()}
        self.looks: list[list[int]] = []
        self.plugins = ["lua"]
        self.error: BackendError | None = None
        self.before: Callable[[], None] = lambda: None
        self.then: Callable[[], None] = lambda: None

    def read_config(self) -> SlurmConfig:
        return SlurmConfig(job_submit_plugins=self.plugins)

    def read_jobs(self, numbers: Collection[int] | None) -> list[SlurmJob]:
        if self.error is not None:
            raise self.error
        assert numbers is not None
        self.before()
        self.looks.append(sorted(numbers))
        found = [JOB._replace(id=number, **facts) for number, facts in self.facts.items()]
        self.then()
        return [job for job in found if job.id in numbers or job.array_id in numbers]


def start(job: int, *nodes: str, **settings: Any) -> StartOrder:
    return StartOrder(a_job(job), tuple((name, 1) for name in nodes), StartSettings(**settings))


class Reply(NamedTuple):
    """An outcome without the job's id."""

    result: str
    detail: str = ""
    code: str = ""


class Commands:
    """Sends orders, and checks that the outcomes have the ids of the orders."""

    def __init__(self, jobs: Jobs) -> None:
        reader: Any = jobs
        self._executor = SlurmCliTransport(ENOUGH_S, reader=reader)

    def send(self, kind: OrderKind, orders: Sequence[JobOrder], epoch: int = 0) -> list[Reply]:
        outcomes = self._executor.send(kind, orders, epoch)
        assert [each.job_id for each in outcomes] == [each.job_id for each in orders]
        return [Reply(each.result, each.detail, each.code) for each in outcomes]


OLD_PLUGIN = "case $line in *Partition=bridge:*) echo 'Invalid partition name specified for job 7' >&2;; esac\n"
"""Complaints of a scontrol beside a submit plugin that does not pin and release in one change."""
ORDERS = [
    start(7, "n1", "n2", tasks_per_node=3, sets_node_count=True, nice=-40),
    start(8, "n3"),
    start(9, "n1", tasks_per_node=2, cpus_per_node=4, cpus=8),
    start(10, "n1", sets_node_count=True, max_nodes=4, partition="short"),
    start(11, "n1", partition="short"),
]


def test_submit_plugin_makes_start_one_command(programs: Path) -> None:
    said = put_scontrol(programs)
    assert Commands(Jobs(j7={}, j8={}, j9={}, j10={}, j11={})).send("start", ORDERS) == [Reply("done")] * 5
    assert said.read_text().splitlines() == [
        "update JobId=7 Partition=bridge:start/n1,n2/2-2 TasksPerNode=3 Nice=-40",
        "update JobId=8 Partition=bridge:start/n3",
        "update JobId=9 Partition=bridge:start/n1 TasksPerNode=2 MinCPUsNode=4 NumCPUs=8",
        "update JobId=10 Partition=bridge:start/n1/1-4/short",
        "update JobId=11 Partition=bridge:start/n1//short",
    ]


@pytest.mark.parametrize("plugins", [["lua"], []])
def test_start_without_plugin_pins_then_releases(programs: Path, plugins: list[str]) -> None:
    """An older plugin is asked once; where none is loaded, never."""
    said = put_scontrol(programs, OLD_PLUGIN)
    jobs = Jobs(j7={}, j8={}, j9={}, j10={}, j11={})
    jobs.plugins = plugins
    sent = Commands(jobs)
    assert sent.send("start", ORDERS[:1]) + sent.send("start", ORDERS[1:]) == [Reply("done")] * 5
    asked = ["update JobId=7 Partition=bridge:start/n1,n2/2-2 TasksPerNode=3 Nice=-40"] if plugins else []
    assert said.read_text().splitlines() == [
        *asked,
        "update JobId=7 ReqNodeList=n1,n2 NumNodes=2-2 TasksPerNode=3 Nice=-40",
        "release 7",
        "update JobId=8 ReqNodeList=n3",
        "release 8",
        "update JobId=9 ReqNodeList=n1 TasksPerNode=2 MinCPUsNode=4 NumCPUs=8",
        "release 9",
        "update JobId=10 Partition=short ReqNodeList=n1 NumNodes=1-4",
        "release 10",
        "update JobId=11 Partition=short ReqNodeList=n1",
        "release 11",
    ]


@pytest.mark.parametrize(
    ("scontrol", "expected"),
    [
        ("", [
            "update JobId=7 Partition=bridge:start:30/n1//short",
            "update JobId=8 Priority=0 Partition=bridge:set:30",
            "update JobId=9 Partition=bridge:release:30",
            "update JobId=10 Partition=bridge:release:30",
            "update JobId=11 ReqNodeList= Partition=bridge:set:30/a,b Nice=5",
        ]),
        (OLD_PLUGIN, [
            "update JobId=7 Partition=bridge:start:30/n1//short",
            "update JobId=7 Partition=short ReqNodeList=n1",
            "release 7",
            "hold 8",
            "release 9,10",
            "update JobId=11 ReqNodeList= Partition=a,b Nice=5",
        ]),
    ],
)  # fmt: skip
def test_every_change_carries_the_epoch(programs: Path, scontrol: str, expected: list[str]) -> None:
    """An older plugin refuses the first such change, and gets ordinary ones."""
    said = put_scontrol(programs, scontrol)
    sent = Commands(Jobs(j7={}, j8={"priority": 5, "comment": ""}, j9={}, j10={}, j11={}))
    changes: list[tuple[OrderKind, list[JobOrder]]] = [
        ("start", [start(7, "n1", partition="short")]),
        ("hold", [UndoOrder(8)]),
        ("release", [UndoOrder(9), UndoOrder(10)]),
        ("unpin", [UndoOrder(11, True, "Partition=a,b Nice=5")]),
    ]
    assert [reply for kind, orders in changes for reply in sent.send(kind, orders, epoch=30)] == [Reply("done")] * 5
    assert said.read_text().splitlines() == expected


@pytest.mark.parametrize("kind", ["hold", "release", "unpin"])
def test_older_plugin_is_asked_once_for_the_epoch(programs: Path, kind: str) -> None:
    said = put_scontrol(programs, OLD_PLUGIN)
    sent = Commands(Jobs(j7={"priority": 5, "comment": ""} if kind == "hold" else {}))
    for _ in range(2):
        assert sent.send(kind, [UndoOrder(7, kind == "unpin")], epoch=30) == [Reply("done")]
    asked = ["bridge:" in line for line in said.read_text().splitlines()]
    assert (asked[:2], any(asked[2:])) == ([True, False], False)


@pytest.mark.parametrize("words", ["held by its owner", "Unable to contact slurm controller", "Invalid node name"])
def test_other_error_of_plugin_start_is_outcome(programs: Path, words: str) -> None:
    said = put_scontrol(programs, complaining(words))
    result = "unknown" if "contact" in words else "refused"
    assert Commands(Jobs(j7={})).send("start", [start(7, "n1")]) == [Reply(result, words)]
    assert said.read_text() == "update JobId=7 Partition=bridge:start/n1\n"


def test_job_with_refused_pin_is_not_released(programs: Path) -> None:
    said = put_scontrol(programs, "case $line in *JobId=7*) echo 'No such nodes' >&2;; esac")
    answers = Commands(Jobs(j7={}, j8={})).send("start", [start(7, "n1"), start(8, "n1")])
    assert answers == [Reply("refused", "No such nodes"), Reply("done")]
    assert "release 7" not in said.read_text()


def test_failed_release_of_pinned_job_is_unknown(programs: Path) -> None:
    put_scontrol(programs, f"{OLD_PLUGIN}case $line in release*) echo 'Access/permission denied' >&2;; esac")
    unreleased = "pinned, but possibly not released: Access/permission denied"
    assert Commands(Jobs(j7={})).send("start", [start(7, "n1")]) == [Reply("unknown", unreleased)]


def test_scontrol_exit_after_pin_leaves_rest_unsent(programs: Path) -> None:
    said = put_scontrol(programs, f"{OLD_PLUGIN}case $line in release\\ 8) kill -9 $$;; esac")
    answers = Commands(Jobs(j7={}, j8={}, j9={})).send("start", [start(n, "n1") for n in (7, 8, 9)])
    assert [(result, code) for result, _, code in answers] == [("done", ""), ("unknown", ""), ("refused", "not_sent")]
    assert "JobId=9" not in said.read_text()


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "RUNNING"}, "RUNNING"),
        ({"priority": 17}, "not held"),
        ({"admin_comment": "", "state_reason": "JobHeldUser"}, "owner"),
        ({"comment": "mine bridge:user-held"}, "owner"),
        ({"priority": None, "unreadable": ["priority"]}, "priority cannot be read"),
    ],
)
def test_starts_only_pending_jobs_held_by_bridge(programs: Path, facts: dict[str, Any], why: str) -> None:
    said = put_scontrol(programs)
    answers = Commands(Jobs(j7=facts, j8={})).send("start", [start(7, "n1"), start(8, "n2"), start(9, "n2")])
    assert [result for result, *_ in answers] == ["refused", "done", "refused"]
    assert (why in answers[0][1], "is unknown to slurmctld" in answers[2][1]) == (True, True)
    assert said.read_text().splitlines() == ["update JobId=8 Partition=bridge:start/n2"]


def test_checks_20_starts_at_a_time_in_one_scontrol_process(programs: Path) -> None:
    put_scontrol(programs, f"echo $$ >>{programs}/pids")
    jobs = Jobs(**{f"j{n}": {} for n in range(1, 101)})
    assert Commands(jobs).send("start", [start(n, "n1") for n in range(1, 101)]) == [Reply("done")] * 100
    assert jobs.looks == [list(range(at, at + 20)) for at in range(1, 101, 20)]
    assert len(set((programs / "pids").read_text().split())) == 1


@pytest.mark.parametrize(
    "name",
    [
        "n1,n2",
        "n[1-3]",
        "",
        "n1 Priority=0",
        "n1\nrelease 8",
        "n1\n",
        'n"1',
        "n=1",
        "-n1",
        "n1;x",
        "nö",
        "n1\r",
        "n\t1",
    ],
)
def test_refuses_invalid_node_name(programs: Path, name: str) -> None:
    said = put_scontrol(programs)
    ((result, why, _),) = Commands(Jobs(j7={})).send("start", [start(7, "n1", name)])
    assert (result, "is not a node name" in why, said.exists()) == ("refused", True, False)


@pytest.mark.parametrize("name", ["n1", "gpu-01.site.example", "N_1"])
def test_node_name_may_have_dots_and_dashes(name: str) -> None:
    assert NODE_NAME_PATTERN.fullmatch(name)


@pytest.mark.parametrize(
    "restore",
    [
        "Priority=99", "\nrelease 8", "\n", "NumNodes=1\n", "UserId=0", "Partition=bridge:start/n1", "NumNodes=1-",
        " NumNodes=1", 'ReqNodeList="n1"', "JobId=8 ReqNodeList=", " ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["hold", "release", "unpin"])
def test_refuses_settings_other_than_pin_removal(programs: Path, restore: str, command: OrderKind) -> None:
    said = put_scontrol(programs)
    facts = {} if command == "unpin" else {"priority": 5}
    ((result, why, _),) = Commands(Jobs(j7=facts)).send(command, [UndoOrder(7, True, restore)])
    assert (result, said.exists()) == ("refused", False)
    assert command != "unpin" or "cannot be cleared" in why


@pytest.mark.parametrize(("facts", "why"), [({"priority": 5}, "is not held"), ({"state": "RUNNING"}, "RUNNING")])
def test_refuses_unpin_of_other_jobs(programs: Path, facts: dict[str, Any], why: str) -> None:
    said = put_scontrol(programs)
    ((result, words, _),) = Commands(Jobs(j7=facts)).send("unpin", [UndoOrder(7, True)])
    assert (result, why in words, said.exists()) == ("refused", True, False)


def test_hold_and_release_clear_pins(programs: Path) -> None:
    said = put_scontrol(programs)
    jobs = Jobs(j7={"priority": 5})
    jobs.before = lambda: jobs.facts[7].update(priority=0 if said.exists() else 5)
    restore = "Partition=main,short TasksPerNode=0 NumNodes=1-6 NumTasks=6 Nice=-3"
    assert Commands(jobs).send("hold", [UndoOrder(7, True, restore)]) == [Reply("done")]
    assert said.read_text() == f"hold 7\nupdate JobId=7 ReqNodeList= {restore}\n"
    said.unlink()
    jobs.before = lambda: None
    assert Commands(jobs).send("release", [UndoOrder(7, True, restore)]) == [Reply("done")]
    assert said.read_text() == f"update JobId=7 ReqNodeList= {restore}\nrelease 7\n"


@pytest.mark.parametrize("held", [{}, {"admin_comment": "", "comment": "", "state_reason": "JobHeldUser"}])
def test_unpin_keeps_any_hold(programs: Path, held: dict[str, Any]) -> None:
    """By whomever the job is held."""
    said = put_scontrol(programs)
    assert Commands(Jobs(j7=held)).send("unpin", [UndoOrder(7, True, "Nice=5")]) == [Reply("done")]
    assert said.read_text() == "update JobId=7 ReqNodeList= Nice=5\n"


def test_job_starting_during_hold_keeps_nodes(programs: Path) -> None:
    said = put_scontrol(programs)
    jobs = Jobs(j7={"priority": 5})
    jobs.then = lambda: jobs.facts[7].update(state="RUNNING")
    assert Commands(jobs).send("hold", [UndoOrder(7, True)])[0].result == "refused"
    assert said.read_text() == "hold 7\n"


RUNS = {"state": "RUNNING", "start_time": 500, "partition": "main", "qos": "low"}


def victim(job: int, mode: VictimMode = "requeue", partition: str = "main") -> Victim:
    return Victim(job, 500, mode, partition, "low")


def test_stops_victims_by_their_mode(programs: Path) -> None:
    """A victim's partitions may be listed in another order."""
    said, cancelled = put_scontrol(programs), put_scancel(programs)
    task: dict[str, Any] = {"array_id": 30, "array_task_id": 4}
    jobs = Jobs(j17={**RUNS, "partition": "slow,fast"}, j18=RUNS, j31={**RUNS, **task})
    task_id = slurm_job_ids.make_task_id(30, 4)
    orders = [victim(17, partition="fast,slow"), victim(18, "cancel"), victim(task_id), victim(task_id, "cancel")]
    assert Commands(jobs).send("preempt", orders) == [Reply("done")] * 4
    assert said.read_text().splitlines() == ["requeue 17", "requeue 30_4"]
    assert cancelled.read_text().splitlines() == ["18", "30_4"]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "COMPLETING"}, "is COMPLETING"),
        ({"state": "PENDING", "start_time": 0}, "is PENDING"),
        ({"start_time": 501}, "its start_time is 501, not 500"),
        ({"partition": "fast"}, "its partition is fast, not main"),
        ({"qos": "high"}, "its qos is high, not low"),
    ],
)
def test_stops_only_the_run_in_the_order(programs: Path, facts: dict[str, Any], why: str) -> None:
    said, cancelled = put_scontrol(programs), put_scancel(programs)
    jobs = Jobs(j17={**RUNS, **facts})
    for mode in get_args(VictimMode):
        assert Commands(jobs).send("preempt", [victim(17, mode)]) == [Reply("refused", why)]
    assert (said.exists(), cancelled.exists()) == (False, False)


@pytest.mark.parametrize(
    ("mode", "scontrol", "result"),
    [
        ("requeue", complaining("Requested operation is presently disabled"), "refused"),
        ("requeue", "exit 9\n", "unknown"),
        ("cancel", "", "unknown"),
    ],
)
def test_failed_stop_is_outcome(programs: Path, mode: VictimMode, scontrol: str, result: str) -> None:
    """A requeue without an answer may have taken effect."""
    put_scontrol(programs, scontrol)
    put_scancel(programs, "echo Unable to contact slurm controller >&2; exit 1")
    assert [each.result for each in Commands(Jobs(j17=RUNS)).send("preempt", [victim(17, mode)])] == [result]


def test_sends_no_further_stop_after_one_that_failed(programs: Path) -> None:
    said = put_scontrol(programs)
    jobs = Jobs(j17=RUNS, j18={**RUNS, "start_time": 7}, j19=RUNS)
    found = Commands(jobs).send("preempt", [victim(17), victim(18), victim(19)])
    assert [each.code or each.result for each in found] == ["done", "refused", "not_sent"]
    assert said.read_text().splitlines() == ["requeue 17"]


def test_splits_off_array_tasks_and_names_indices(programs: Path) -> None:
    """The last one keeps the common record, whose bare number would be the whole array."""
    said = put_scontrol(programs)
    jobs = Jobs(j19={"array_id": 19, "array_tasks_waiting": "0-1,5"})

    def split() -> None:
        if said.exists():
            jobs.facts = {
                20: {"array_id": 19, "array_task_id": 0},
                21: {"array_id": 19, "array_task_id": 1},
                19: {"array_id": 19, "array_tasks_waiting": "5"},
            }

    jobs.before = split
    answers = Commands(jobs).send("start", [start((task + 1) << 32 | 19, "n1") for task in (0, 1, 5)])
    assert answers == [Reply("done")] * 3
    assert said.read_text().splitlines()[0] == "hold 19_[0-1]"
    tasks = [line.split()[1] for line in said.read_text().splitlines() if line.startswith("update")]
    assert tasks == ["JobId=19_0", "JobId=19_1", "JobId=19_5"]


def test_holds_pending_tasks_of_record_together(programs: Path) -> None:
    said = put_scontrol(programs)
    common = {"array_id": 19, "array_tasks_waiting": "2,4-8:2", "priority": 5}
    jobs = Jobs(j19=common, j30={"array_id": 19, "array_task_id": 1, "state": "RUNNING", "priority": 5})
    assert Commands(jobs).send("hold", [UndoOrder(3 << 32 | 19)]) == [Reply("done")]
    assert said.read_text() == "hold 19_[2,4-8:2]\n"


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (BackendUnavailable("squeue: not reached"), BackendUnavailable),
        (BackendTimeout("squeue: late"), BackendUnavailable),
        (CommandRefused("squeue: of another release"), CommandRefused),
    ],
)
@pytest.mark.parametrize("command", ["start", "hold", "release"])
def test_failed_first_check_sends_no_command(
    programs: Path, error: BackendError, raised: type[Exception], command: str
) -> None:
    """A look that is late is not a command that may have had an effect."""
    said = put_scontrol(programs)
    jobs = Jobs(j7={})
    jobs.error = error
    with pytest.raises(raised, match="squeue"):
        Commands(jobs).send(command, [start(7, "n1") if command == "start" else UndoOrder(7)])
    assert not said.exists()


def test_releases_jobs_without_pins_by_one_command(programs: Path) -> None:
    """One check for all of them; arrays by their own commands. If scontrol complains, a check identifies the job."""
    said = put_scontrol(programs, "case $line in *,*) echo 'Job/step already completing' >&2;; esac")
    jobs = Jobs(j7={}, j8={}, j9={}, j19={"array_id": 19, "array_tasks_waiting": "2-3"}, j10={"state": "RUNNING"})

    def released() -> None:
        if said.exists():
            jobs.facts[7] = jobs.facts[9] = {"priority": 5}

    jobs.before = released
    wanted = [7, 8, 9, 3 << 32 | 19, 10]
    assert Commands(jobs).send("release", [UndoOrder(job) for job in wanted]) == [
        Reply("done"), Reply("refused", "Job/step already completing"), Reply("done"), Reply("done"),
        Reply("refused", "is RUNNING"),
    ]  # fmt: skip
    assert said.read_text().splitlines() == ["release 7,8,9", "release 19_[2-3]"]
    assert jobs.looks == [[19], [7, 8, 9, 10, 19], [7, 8, 9]]


def test_releases_delayed_job(programs: Path) -> None:
    """The plugin ends the delay; a release of any other job that is not held would be pointless."""
    said = put_scontrol(programs)
    delayed = {"priority": 1, "admin_comment": "bridge:wait", "comment": "bridge:begin(0)"}
    jobs = Jobs(j7=delayed, j8={"priority": 1})
    assert Commands(jobs).send("release", [UndoOrder(job) for job in (7, 8)]) == [Reply("done")] * 2
    assert said.read_text().splitlines() == ["release 7"]


def test_failed_check_after_unpin_leaves_release_unknown(programs: Path) -> None:
    put_scontrol(programs)
    jobs = Jobs(j7={})

    def breaks() -> None:
        jobs.error = BackendUnavailable("squeue: not reached") if len(jobs.looks) == 2 else None

    jobs.then = breaks
    unreleased = Reply("unknown", "not released: squeue: not reached")
    assert Commands(jobs).send("release", [UndoOrder(7, True)]) == [unreleased]


def test_missing_scontrol_refuses_orders_with_reason(programs: Path) -> None:
    missing = Reply("refused", "scontrol cannot run: No such file or directory")
    assert Commands(Jobs(j7={})).send("start", [start(7, "n1")]) == [missing]
