"""The commands by scontrol: its input for each order, and that a job is checked before."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.transport import CommandReply
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import NODE, SlurmCliCommands
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from tests.unit.bridge.adapters.slurm.transport.fake_scontrol import complaining, put_scontrol

ENOUGH_S = 20.0
JOB: Record = {
    "state": "PENDING",
    "state_reason": "JobHeldAdmin",
    "priority": 0,
    "admin_comment": "bridge:wait",
    "comment": "bridge:wait",
    "requeue_count": 0,
    "array_id": None,
    "array_task_id": None,
    "array_tasks_waiting": None,
    "num_nodes": 1,
}


class Jobs:
    """Jobs by number, as a fresh look shows them."""

    def __init__(self, **facts: dict[str, Any]) -> None:
        self.facts = {int(name.removeprefix("j")): fact for name, fact in facts.items()}
        self.looks: list[list[int]] = []
        self.plugins = ["lua"]
        self.error: BackendError | None = None
        self.before: Callable[[], None] = lambda: None
        self.then: Callable[[], None] = lambda: None

    def read_config(self) -> Record:
        return {"job_submit_plugins": self.plugins}

    def read_jobs(self, numbers: Collection[int] | None) -> list[Record]:
        if self.error is not None:
            raise self.error
        assert numbers is not None
        self.before()
        self.looks.append(sorted(numbers))
        found = [{**JOB, "id": number, **facts} for number, facts in self.facts.items()]
        self.then()
        return [job for job in found if job["id"] in numbers or job["array_id"] in numbers]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def start(job: int, *nodes: str, **more: Any) -> Record:
    return {"job": job, "nodes": list(nodes), "tasks_per_node": 0, **more}


def commands(jobs: Jobs) -> SlurmCliCommands:
    return SlurmCliCommands(jobs, ENOUGH_S)


OLD_PLUGIN = "case $line in *Partition=*) echo 'Invalid partition name specified for job 7' >&2;; esac\n"
"""Complaints of a scontrol beside a submit plugin that does not pin and release in one change."""
ORDERS = [
    start(7, "n1", "n2", tasks_per_node=3, num_nodes="2-2", nice=-40),
    start(8, "n3"),
    start(9, "n1", tasks_per_node=2, cpus_per_node=4, cpus=8),
]


def test_the_submit_plugin_makes_one_change_of_a_start(programs: Path) -> None:
    said = put_scontrol(programs)
    assert commands(Jobs(j7={}, j8={}, j9={})).send("start", ORDERS) == [CommandReply("done")] * 3
    assert said.read_text().splitlines() == [
        "update JobId=7 Partition=bridge:start/n1,n2/2-2 TasksPerNode=3 Nice=-40",
        "update JobId=8 Partition=bridge:start/n3",
        "update JobId=9 Partition=bridge:start/n1 TasksPerNode=2 MinCPUsNode=4 NumCPUs=8",
    ]


@pytest.mark.parametrize("words", ["held by its owner", "Unable to contact slurm controller", "Invalid node name"])
def test_another_complaint_of_such_a_start_is_that_of_the_start(programs: Path, words: str) -> None:
    said = put_scontrol(programs, complaining(words))
    ((result, why, _),) = commands(Jobs(j7={})).send("start", [start(7, "n1")])
    assert (result, why) == ("unknown" if "contact" in words else "refused", words)
    assert said.read_text() == "update JobId=7 Partition=bridge:start/n1\n"


@pytest.mark.parametrize("plugins", [["lua"], []])
def test_without_it_a_start_pins_and_then_releases(programs: Path, plugins: list[str]) -> None:
    """An older plugin is asked once; where none is loaded, never."""
    said = put_scontrol(programs, OLD_PLUGIN)
    jobs = Jobs(j7={}, j8={}, j9={})
    jobs.plugins = plugins
    sent = commands(jobs)
    assert sent.send("start", ORDERS[:1]) + sent.send("start", ORDERS[1:]) == [CommandReply("done")] * 3
    asked = ["update JobId=7 Partition=bridge:start/n1,n2/2-2 TasksPerNode=3 Nice=-40"] if plugins else []
    assert said.read_text().splitlines() == [
        *asked,
        "update JobId=7 ReqNodeList=n1,n2 NumNodes=2-2 TasksPerNode=3 Nice=-40",
        "release 7",
        "update JobId=8 ReqNodeList=n3",
        "release 8",
        "update JobId=9 ReqNodeList=n1 TasksPerNode=2 MinCPUsNode=4 NumCPUs=8",
        "release 9",
    ]


def test_a_job_that_takes_no_pin_is_not_released(programs: Path) -> None:
    said = put_scontrol(programs, "case $line in *JobId=7*) echo 'No such nodes' >&2;; esac")
    answers = commands(Jobs(j7={}, j8={})).send("start", [start(7, "n1"), start(8, "n1")])
    assert answers == [CommandReply("refused", "No such nodes"), CommandReply("done")]
    assert "release 7" not in said.read_text()


def test_a_pin_that_may_have_been_lost_is_unknown_and_the_job_not_released(programs: Path) -> None:
    said = put_scontrol(programs, complaining("Unable to contact slurm controller (connect failure)"))
    assert commands(Jobs(j7={})).send("start", [start(7, "n1")])[0][0] == "unknown"
    assert "release" not in said.read_text()


def test_a_release_that_fails_is_unknown_since_the_job_is_pinned(programs: Path) -> None:
    put_scontrol(programs, f"{OLD_PLUGIN}case $line in release*) echo 'Access/permission denied' >&2;; esac")
    ((result, why, _),) = commands(Jobs(j7={})).send("start", [start(7, "n1")])
    assert (result, why) == ("unknown", "pinned, but perhaps not released: Access/permission denied")


def test_a_scontrol_that_dies_between_pin_and_release_leaves_that_unknown_and_the_rest_unsent(programs: Path) -> None:
    said = put_scontrol(programs, f"{OLD_PLUGIN}case $line in release\\ 8) kill -9 $$;; esac")
    answers = commands(Jobs(j7={}, j8={}, j9={})).send("start", [start(n, "n1") for n in (7, 8, 9)])
    assert [result for result, *_ in answers] == ["done", "unknown", "refused"]
    assert answers[2].code == "not_sent"
    assert "JobId=9" not in said.read_text()


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "RUNNING"}, "RUNNING"),
        ({"priority": 17}, "not held"),
        ({"admin_comment": None, "state_reason": "JobHeldUser"}, "owner"),
        ({"comment": "mine bridge:user-held"}, "owner"),
        ({"priority": None, "unreadable": ["priority"]}, "priority cannot be read"),
    ],
)
def test_only_a_pending_job_held_for_us_is_started(programs: Path, facts: dict[str, Any], why: str) -> None:
    said = put_scontrol(programs)
    answers = commands(Jobs(j7=facts, j8={})).send("start", [start(7, "n1"), start(8, "n2"), start(9, "n2")])
    assert [result for result, *_ in answers] == ["refused", "done", "refused"]
    assert why in answers[0][1]
    assert "does not know" in answers[2][1]
    assert said.read_text().splitlines() == ["update JobId=8 Partition=bridge:start/n2"]


def test_many_starts_are_looked_at_twenty_at_a_time_and_told_to_one_scontrol(programs: Path) -> None:
    put_scontrol(programs, f"echo $$ >>{programs}/pids")
    jobs = Jobs(**{f"j{n}": {} for n in range(1, 101)})
    answers = commands(jobs).send("start", [start(n, "n1") for n in range(1, 101)])
    assert answers == [CommandReply("done")] * 100
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
def test_what_is_no_name_of_one_node_is_not_sent(programs: Path, name: str) -> None:
    said = put_scontrol(programs)
    assert NODE.fullmatch(name) is None
    ((result, why, _),) = commands(Jobs(j7={})).send("start", [start(7, "n1", name)])
    assert result == "refused"
    assert "is no name of a node" in why
    assert not said.exists()


@pytest.mark.parametrize("name", ["n1", "gpu-01.site.example", "N_1"])
def test_names_of_nodes_may_have_dots_and_dashes(name: str) -> None:
    assert NODE.fullmatch(name)


@pytest.mark.parametrize(
    "clear",
    [
        "ReqNodeList= Priority=99",
        "ReqNodeList=\nrelease 8",
        "ReqNodeList=\n",
        "ReqNodeList= UserId=0",
        "ReqNodeList= NumNodes=1-",
        "ReqNodeList=  NumNodes=1",
        'ReqNodeList="n1"',
        "JobId=8 ReqNodeList=",
        " ",
    ],
)
@pytest.mark.parametrize("command", ["hold", "release"])
def test_settings_that_do_more_than_undo_a_pin_are_not_sent(programs: Path, clear: str, command: str) -> None:
    said = put_scontrol(programs)
    ((result, *_),) = commands(Jobs(j7={"priority": 5})).send(command, [{"job": 7, "clear": clear}])
    assert result == "refused"
    assert not said.exists()


def test_a_hold_holds_and_clears_and_a_hand_back_clears_and_releases(programs: Path) -> None:
    said = put_scontrol(programs)
    jobs = Jobs(j7={"priority": 5})
    jobs.before = lambda: jobs.facts[7].update(priority=0 if said.exists() else 5)
    clear = "ReqNodeList= TasksPerNode=0 NumNodes=1-6 NumTasks=6 Nice=-3"
    assert commands(jobs).send("hold", [{"job": 7, "clear": clear}]) == [CommandReply("done")]
    assert said.read_text() == f"hold 7\nupdate JobId=7 {clear}\n"
    said.unlink()
    jobs.before = lambda: None
    assert commands(jobs).send("release", [{"job": 7, "clear": clear}]) == [CommandReply("done")]
    assert said.read_text() == f"update JobId=7 {clear}\nrelease 7\n"


@pytest.mark.parametrize("held", [{}, {"admin_comment": None, "comment": None, "state_reason": "JobHeldUser"}])
def test_a_pin_is_taken_off_a_held_job_and_the_hold_stays(programs: Path, held: dict[str, Any]) -> None:
    """By whomever the job is held."""
    said = put_scontrol(programs)
    assert commands(Jobs(j7=held)).send("unpin", [{"job": 7, "clear": "ReqNodeList= Nice=5"}]) == [CommandReply("done")]
    assert said.read_text() == "update JobId=7 ReqNodeList= Nice=5\n"


@pytest.mark.parametrize(
    ("facts", "clear", "why"),
    [
        ({"priority": 5}, "ReqNodeList=", "is not held"),
        ({"state": "RUNNING"}, "ReqNodeList=", "RUNNING"),
        ({}, "ReqNodeList= Priority=9", "cannot be cleared"),
    ],
)
def test_of_other_jobs_no_pin_is_taken_off(programs: Path, facts: dict[str, Any], clear: str, why: str) -> None:
    said = put_scontrol(programs)
    ((result, words, _),) = commands(Jobs(j7=facts)).send("unpin", [{"job": 7, "clear": clear}])
    assert result == "refused"
    assert why in words
    assert not said.exists()


def test_a_job_that_starts_during_its_hold_keeps_its_nodes(programs: Path) -> None:
    said = put_scontrol(programs)
    jobs = Jobs(j7={"priority": 5})
    jobs.then = lambda: jobs.facts[7].update(state="RUNNING")
    ((result, *_),) = commands(jobs).send("hold", [{"job": 7, "clear": "ReqNodeList="}])
    assert result == "refused"
    assert said.read_text() == "hold 7\n"


def test_array_tasks_are_split_off_and_named_by_their_indices(programs: Path) -> None:
    """The last one keeps the common record, whose bare number would be the whole array."""
    said = put_scontrol(programs)
    jobs = Jobs(j19={"array_id": 19, "array_tasks_waiting": "0-1,5"})

    def split() -> None:
        if said.exists():
            jobs.facts = {
                20: {"array_id": 19, "array_task_id": None},
                21: {"array_id": 19, "array_task_id": 1},
                19: {"array_id": 19, "array_tasks_waiting": "5"},
            }

    jobs.before = split
    answers = commands(jobs).send("start", [start((task + 1) << 32 | 19, "n1") for task in (0, 1, 5)])
    assert answers == [CommandReply("done")] * 3
    assert said.read_text().splitlines()[0] == "hold 19_[0-1]"
    tasks = [line.split()[1] for line in said.read_text().splitlines() if line.startswith("update")]
    assert tasks == ["JobId=19_0", "JobId=19_1", "JobId=19_5"]


def test_waiting_tasks_that_share_a_record_are_held_together_and_running_ones_not_named(programs: Path) -> None:
    said = put_scontrol(programs)
    common = {"array_id": 19, "array_tasks_waiting": "2,4-8:2", "priority": 5}
    jobs = Jobs(j19=common, j30={"array_id": 19, "array_task_id": 1, "state": "RUNNING", "priority": 5})
    assert commands(jobs).send("hold", [{"job": 3 << 32 | 19, "clear": ""}]) == [CommandReply("done")]
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
def test_without_a_first_look_nothing_is_commanded(
    programs: Path, error: BackendError, raised: type[Exception], command: str
) -> None:
    """A look that is late is not a command that may have had an effect."""
    said = put_scontrol(programs)
    jobs = Jobs(j7={})
    jobs.error = error
    with pytest.raises(raised, match="squeue"):
        commands(jobs).send(command, [{**start(7, "n1"), "clear": ""}])
    assert not said.exists()


def test_jobs_without_a_pin_are_released_by_one_command(programs: Path) -> None:
    """One check for all of them; arrays by their own commands. If scontrol complains, a check identifies the job."""
    said = put_scontrol(programs, "case $line in *,*) echo 'Job/step already completing' >&2;; esac")
    jobs = Jobs(j7={}, j8={}, j9={}, j19={"array_id": 19, "array_tasks_waiting": "2-3"}, j10={"state": "RUNNING"})

    def released() -> None:
        if said.exists():
            jobs.facts[7] = jobs.facts[9] = {"priority": 5}

    jobs.before = released
    wanted = [7, 8, 9, 3 << 32 | 19, 10]
    answers = commands(jobs).send("release", [{"job": job, "clear": ""} for job in wanted])
    done = CommandReply("done")
    assert answers == [
        done,
        CommandReply("refused", "Job/step already completing"),
        done,
        done,
        CommandReply("refused", "is RUNNING"),
    ]
    assert said.read_text().splitlines() == ["release 7,8,9", "release 19_[2-3]"]
    assert jobs.looks == [[19], [7, 8, 9, 10, 19], [7, 8, 9]]


def test_a_look_that_fails_after_pins_were_cleared_leaves_the_hand_back_unknown(programs: Path) -> None:
    put_scontrol(programs)
    jobs = Jobs(j7={})

    def breaks() -> None:
        if len(jobs.looks) == 2:
            jobs.error = BackendUnavailable("squeue: not reached")

    jobs.then = breaks
    ((result, why, _),) = commands(jobs).send("release", [{"job": 7, "clear": "ReqNodeList="}])
    assert (result, why) == ("unknown", "not released: squeue: not reached")


def test_without_scontrol_orders_are_refused_with_the_reason(programs: Path) -> None:
    ((result, why, _),) = commands(Jobs(j7={})).send("start", [start(7, "n1")])
    assert (result, why) == ("refused", "scontrol cannot be run: No such file or directory")
