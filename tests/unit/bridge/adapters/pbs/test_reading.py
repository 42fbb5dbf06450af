"""An object that cannot be parsed is omitted, and affects no other object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsProgramRunner
from cpsched_bridge.adapters.pbs.transport.pbs_reader import PbsStateReader
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import Observation
from tests.builders import words

WHEN = "Sun Nov 22 12:40:38 2026"
LATER = "Fri Nov 22 12:40:38 2999"


def a_vnode(name: str, **more: Any) -> dict[str, Any]:
    return {
        "state": "free", "resources_available": {"host": name, "ncpus": 4, "mem": "8gb", "vnode": name},
        "resources_assigned": {}, "sharing": "default_shared", **more,
    }  # fmt: skip


def a_job(select: str = "1:ncpus=1", **more: Any) -> dict[str, Any]:
    return {
        "Job_Name": "x", "Job_Owner": "ada@h", "euser": "ada", "egroup": "ada", "job_state": "Q", "queue": "workq",
        "ctime": WHEN, "schedselect": select, "project": "p",
        "Resource_List": {"place": "free", "walltime": "01:00:00"},
        **more,
    }  # fmt: skip


@dataclass
class Answers(PbsProgramRunner):
    """PBS's programs; an object may be a text, which is no JSON then."""

    vnodes: dict[str, Any] = field(default_factory=lambda: {"a": a_vnode("a"), "b": a_vnode("b")})
    jobs: dict[str, Any] = field(default_factory=dict)
    queues: dict[str, Any] = field(
        default_factory=lambda: {"workq": {"queue_type": "Execution", "started": "False", "enabled": "True"}}
    )
    server: dict[str, Any] = field(default_factory=dict)
    reservations: str = ""
    resources: str = "Resource rack\n    type = string\n    flag = h\n"
    as_text: str = ""
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def query(self, commands: Mapping[str, Sequence[str]], until_s: float | None = None) -> dict[str, str]:
        self.asked += commands
        return {name: self._answer(tuple(command)) for name, command in commands.items()}

    def _answer(self, command: tuple[str, ...]) -> str:
        match command:
            case ("qstat", "-f", "-F", "json", "-t"):
                return printed("Jobs", self.jobs)
            case ("qstat", "-f", "-F", "json", name):
                return printed("Jobs", {name: self.jobs[name]})
            case ("qstat", "-Q", *_):
                return printed("Queue", self.queues)
            case ("qstat", "-B", *_):
                return printed("Server", {"vm": self.server})
            case ("pbs_rstat", "-F"):
                return self.reservations
            case ("pbsnodes", "-av", "-F", "json"):
                return printed("nodes", self.vnodes)
            case ("pbsnodes", "-av"):
                return self.as_text
            case ("qmgr", "-c", "list sched"):
                return ""
            case ("qmgr", "-c", "list resource"):
                return self.resources
        raise AssertionError(command)

    def list_missing_programs(self) -> list[str]:
        return []

    def seen(self) -> Observation:
        return PbsBackend(self, ("workq",), "leftq").observe()


def printed(kind: str, objects: dict[str, Any]) -> str:
    """Laid out as PBS's programs do; an object that is a text is put in as it is."""
    marks = {f"@{at}@": each for at, each in enumerate(objects.values()) if isinstance(each, str)}
    names = {each: mark for mark, each in marks.items()}
    shown = {name: names[each] if isinstance(each, str) else each for name, each in objects.items()}
    text = json.dumps({"timestamp": 1, "pbs_version": "20", "pbs_server": "vm", kind: shown}, indent=4)
    for mark, each in marks.items():
        text = text.replace(f'"{mark}"', each)
    return text.replace('": ', '":')


BROKEN = '{\n            "state":"free",\n            what is this\n        }'


def test_excludes_and_names_only_unreadable_records() -> None:
    """One vnode, job, queue, reservation and resource of each kind of damage, beside one of each that is well."""
    pbs = Answers()
    pbs.vnodes |= {
        "c": BROKEN,
        "d": a_vnode("d", state=["free", "busy"]),
        "e": a_vnode("e", resources_available={"ncpus": "four", "host": "e"}),
        "f": a_vnode("f", resources_assigned={"mem": "some"}),
        "g": a_vnode("g", resources_available={"ncpus": 4, "rack": 7}),
        "h": a_vnode("h", resv="R3.vm, R4.vm"),
    }
    pbs.as_text = "a\n     resources_available.rack = 07\n"
    pbs.jobs = {
        "1.vm": a_job(),
        "2.vm": BROKEN,
        "3.vm": a_job(Resource_List=[1]),
        "4[9999999].vm": a_job(),
        "no job": a_job(),
        "5.vm": a_job(project={"job_state": "R"}, egroup=["a"]),
        "6.vm": a_job(job_state="R", substate=42, exec_vnode="(b:ncpus=two)", stime=WHEN),
        "7.vm": a_job(job_state="R", substate=42, exec_vnode="(b:ncpus=2)", stime=WHEN, egroup=["a"], project={}),
    }
    pbs.queues |= {"odd": BROKEN, "other": {"queue_type": ["Execution"]}}
    pbs.server = {"max_run": "[g:ada=1]"}
    pbs.reservations = (
        f"Resv ID: R1.vm\nreserve_state = RESV_CONFIRMED\nresv_nodes = (a:ncpus=1)\nreserve_start = {LATER}\n"
        f"reserve_duration = 60\n"
        "Resv ID: R2.vm\nreserve_state = RESV_CONFIRMED\nresv_nodes = (b:ncpus=1)\nreserve_start = soon\n"
        "Resv ID: R3.vm\nreserve_state = RESV_RUNNING\nreserve_start = soon\n"
    )
    seen = PbsBackend(pbs, ("workq", "odd", "other"), "leftq").observe()
    assert seen.notes == ()
    assert sorted(f"{each.kind} {each.name} cannot be read: {each.detail}" for each in seen.unusable) == [
        "job no job cannot be read: is not a job name",
        "node c cannot be read: its record is malformed",
        "node d cannot be read: state is not a single text value",
        "node e cannot be read: ncpus: 'four' is not a number",
        "node f cannot be read: mem: size=some: must be a size like 100mb",
        "node g cannot be read: rack is printed as a number instead of text",
        "partition odd cannot be read: its record is malformed",
        "partition other cannot be read: queue_type is not a single text value",
        "reservation R2.vm cannot be read: 'soon' is not a time",
        "reservation R3.vm cannot be read: 'soon' is not a time",
    ]
    doctor = {each.name: each.detail for each in PbsBackend(pbs, ("workq", "odd", "other"), "leftq").run_checks()}
    assert doctor["objects"].startswith("ignored: job no job: record cannot be read: is not a job name; node ")
    assert doctor["objects"].endswith("; and 5 more")
    assert seen.cluster.node_names == ("a", "b", "e", "f", "h")
    assert np.array_equal(seen.free, [[4, 8192], [0, 0], [0, 0], [0, 0], [0, 0]])
    assert {each.label: words(each.job.ineligible) for each in seen.pending} == {"1": None}
    assert {each.label: words(each.reason) for each in seen.unmanaged} == {
        "2": "cannot be read: its record is malformed",
        "3": "cannot be read: Resource_List has no parts",
        "4[9999999]": "another job has the same number",
        "5": "cannot be read: egroup is not a single text value",
    }
    assert {each.job.id: each.placement for each in seen.running} == {6: (), 7: ((1, 1),)}


@pytest.mark.parametrize(("asks", "members"), [
    ("07", "a"), ("7", "b"), ("1e5", "d"), ("100000", "e"), ("true", "f"), ("None", ""), ("null", "g"), ("007", "c"),
    ("[1]", "h"),
])  # fmt: skip
def test_distinguishes_text_resources_that_resemble_numbers(asks: str, members: str) -> None:
    """OpenPBS of today prints `07` and `007` as 7, `1e5` as 100000, `null` as nothing; `pbsnodes -av` as they are."""
    texts = {"a": "07", "b": "7", "c": "007", "d": "1e5", "e": "100000", "f": "true", "g": "null", "h": "[1]"}
    values = {"a": 7, "b": 7, "c": 7, "d": 100000, "e": 100000, "f": True, "g": None, "h": [1]}
    pbs = Answers(vnodes={name: a_vnode(name) for name in texts})
    for name, value in values.items():
        pbs.vnodes[name]["resources_available"]["rack"] = value
    pbs.as_text = "".join(
        f"{name}\n     ntype = PBS\n     last_used_time = {WHEN}\n\n     resources_available.rack = {text}\n\n"
        for name, text in texts.items()
    )
    pbs.jobs = {"1.vm": a_job(f"1:ncpus=1:rack={asks}"), "2.vm": a_job("2:ncpus=3", Resource_List={
        "place": "free:group=rack", "walltime": "1:00:00"})}  # fmt: skip
    seen = pbs.seen()
    assert seen.notes == ()
    where = {each.label: seen.cluster.node_sets[each.job.request.node_set] for each in seen.pending}
    assert "".join(np.array(list("abcdefgh"))[where["1"]] if "1" in where else []) == members
    assert {each.label: words(each.reason) for each in seen.unmanaged} == {
        "2": "place=group=rack: no group of vnodes can hold the job",
        **({} if members else {"1": f"no vnode has rack={asks}"}),
    }


def test_distinguishes_number_partitions_or_leaves_jobs() -> None:
    pbs = Answers(vnodes={"a": a_vnode("a", partition=7), "b": a_vnode("b", partition="p7")})
    pbs.as_text = "a\n     partition = 07\n"
    pbs.jobs = {"1.vm": a_job()}
    pbs.queues["workq"]["partition"] = "07"
    (pending,) = pbs.seen().pending
    assert pbs.seen().cluster.node_sets[pending.job.request.node_set].tolist() == [True, False]
    pbs.queues["workq"]["partition"] = 7
    assert [words(each.reason) for each in pbs.seen().unmanaged] == [
        "partition 7 of queue workq is printed as a number instead of text"
    ]


def test_unreadable_server_record_fails_reading() -> None:
    pbs = Answers()
    pbs.server = BROKEN  # type: ignore[assignment]
    with pytest.raises(BackendUnavailable, match=r"^qstat -B: its record is malformed$"):
        pbs.seen()


def test_second_reading_repeats_only_what_may_have_changed() -> None:
    """The vnodes show reservations, also later ones, so that `pbs_rstat` runs only if they show others."""
    pbs = Answers(jobs={"1.vm": a_job()}, reservations="Resv ID: R1.vm\nreserve_state = RESV_CONFIRMED\n")
    pbs.vnodes["a"]["resv"] = "R1.vm"
    reader = PbsStateReader(pbs)
    before = reader.read()
    pbs.jobs["1.vm"]["job_state"] = "H"
    pbs.vnodes["b"]["state"] = "offline"
    pbs.server["eligible_time_enable"] = "True"
    pbs.asked.clear()
    after = reader.read_again(before, while_idle=True)
    assert pbs.asked == ["jobs", "queues", "vnodes"]
    assert (after.jobs["1.vm"].state, after.vnodes["b"].states) == ("H", {"offline"})
    assert (after.server, after.reservations) == (before.server, before.reservations)

    pbs.vnodes["b"]["resv"] = "R2.vm"
    pbs.reservations += "Resv ID: R2.vm\nreserve_state = RESV_CONFIRMED\n"
    assert set(reader.read_again(before, while_idle=False).reservations) == {"R1.vm", "R2.vm"}


def test_runs_directives_until_one_fails(tmp_path: Path) -> None:
    """As `qmgr` does: the message says which one failed."""
    qmgr = tmp_path / "qmgr"
    qmgr.write_text('#!/bin/sh\n[ "$*" = -a ] || exit 9\nread a; read b; echo "$b, after $a"\n')
    qmgr.chmod(0o755)
    programs = PbsProgramRunner(str(tmp_path))
    assert programs.run_directives(["set queue q started = False", "list sched"]) == (
        "list sched, after set queue q started = False\n"
    )
    qmgr.write_text("#!/bin/sh\necho 'qmgr obj=q svr=default: Unknown queue' >&2\nexit 2\n")
    with pytest.raises(CommandRefused, match="Unknown queue"):
        programs.run_directives(["set queue q started = False"])
    qmgr.write_text("#!/bin/sh\necho 'qmgr: cannot connect to server vm' >&2\nexit 3\n")
    with pytest.raises(BackendTimeout):
        programs.run_directives(["set queue q started = False"])
