"""One complex observation, compared as a whole: every amount, time and row on which a decision is based."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cpsched_bridge.adapters.pbs.pbs_objects import PbsCustomResource, Record, parse_job
from cpsched_bridge.adapters.pbs.translation.pbs_observation import PbsTranslator, translate_ended_jobs
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Hold, Observation, Outage
from tests.builders import words
from tests.unit.bridge.adapters.pbs.scenes import Printed

NOW = 1_000_000
KINDS = {
    "lic": PbsCustomResource("float", "hn"),
    "ngpus": PbsCustomResource("long", "hn"),
    "scr": PbsCustomResource("size", "nh"),
}


def a_vnode(has: str, used: str = "", state: str = "free", **more: str) -> Record:
    """`ncpus=4 mem=8gb`."""

    def parts(words: str) -> dict[str, str | tuple[str, ...]]:
        return dict(each.split("=") for each in words.split())  # type: ignore[arg-type]

    return {"state": state, "resources_available": parts(has), "resources_assigned": parts(used), **more}


def a_job(select: str, state: str = "Q", place: str = "free", walltime: str | None = "600", **more: Any) -> Record:
    wanted = {"place": place, "select": select, **({} if walltime is None else {"walltime": walltime})}
    more.setdefault("queue", "workq")
    return {
        "job_state": state, "schedselect": select, "Resource_List": wanted | more.pop("wants", {}), "euser": "ada",
        "egroup": "staff", "project": "p", "Job_Name": "n", "ctime": str(NOW - 100), **more,
    }  # fmt: skip


def run(where: str, since: int, select: str = "1:ncpus=1", **more: Any) -> Record:
    return a_job(select, "R", substate="42", exec_vnode=where, stime=str(since), **more)


def a_reservation(where: str, begin: int, end: int) -> Record:
    return {
        "reserve_state": "RESV_CONFIRMED", "resv_nodes": where, "reserve_start": str(begin), "reserve_end": str(end)
    }  # fmt: skip


def a_reading(**changes: Any) -> Printed:
    vnodes = {
        "a": a_vnode("ncpus=8 mem=8191kb lic=2.5 scr=1gb", "ncpus=3 mem=1kb lic=0.5"),
        "b": a_vnode("ncpus=4 mem=4gb ngpus=2", "ncpus=6 mem=5gb ngpus=1"),
        "c": a_vnode("ncpus=4 mem=4gb", state="offline,down"),
        "d": a_vnode("ncpus=4 mem=4gb", state="job-exclusive"),
        "e": a_vnode("ncpus=4 mem=4gb"),
        "f": a_vnode("ncpus=4 mem=4gb"),
        "g": a_vnode("ncpus=4 mem=4gb"),
        "h": a_vnode("ncpus=4 mem=4gb"),
    }
    jobs = {
        "1.s": run("(a:ncpus=1)+(a:ncpus=1)", NOW - 50, "2:ncpus=1"),
        "2.s": run("(a:ncpus=1:mem=1kb)", NOW + 50, walltime="01:00:00"),
        "3.s": run("(b:ncpus=2:ngpus=1)+(c:ncpus=2:ngpus=1)", NOW, walltime=None, queue="other"),
        "4.s": run("(gone:ncpus=2)", NOW - 5),
        "5.s": a_job("1:ncpus=1:lic=0.5:scr=1kb", wants={"lic": "0.5"}),
        "6.s": a_job("2:ncpus=1", walltime="601"),
        "7.s": a_job("1:ncpus=1", "S", exec_vnode="(e:ncpus=1)", stime=str(NOW - 9)),
    }
    reservations = {
        "R1.s": a_reservation("(e:ncpus=1)", NOW + 600, NOW + 900),
        "R2.s": a_reservation("(f:ncpus=1)", NOW - 600, NOW),
        "R3.s": a_reservation("(g:ncpus=1)", NOW, NOW + 1),
        "R4.s": a_reservation("(h:ncpus=1)", NOW + 1, NOW + 60) | {"reserve_state": "RESV_UNCONFIRMED"},
    }
    server: Record = {"max_run_res": {"lic": "[o:PBS_ALL=2.5]", "ncpus": ("[u:PBS_GENERIC=9]", "[u:bob=1]")}}
    queues: dict[str, Record] = {
        "workq": {"queue_type": "Execution", "started": "False", "max_run": "[g:staff=7]"},
        "other": {"queue_type": "Execution", "started": "True"},
    }
    return replace(Printed(NOW, server, jobs, queues, vnodes, reservations, KINDS), **changes)


def seen_of(*printed: Printed) -> Observation:
    """Return the observation of the last of several readings."""
    translator = PbsTranslator(("workq",))
    seen = [translator.observe(each, translator.interpret_reading(each)) for each in map(Printed.parsed, printed)]
    return seen[-1]


def test_reads_complete_observation() -> None:
    seen = seen_of(a_reading())
    names, resources = seen.cluster.node_names, seen.cluster.resources
    assert (names, resources) == (tuple("abcdefgh"), ("ncpus", "mem", "lic", "ngpus", "scr"))
    assert seen.cluster.capacity.tolist() == [
        [8, 7, 2, 0, 1024], [4, 4096, 0, 2, 0], *[[4, 4096, 0, 0, 0]] * 6
    ]  # fmt: skip
    assert seen.free.tolist() == [
        [5, 6, 1, 0, 1024], [0, 0, 0, 1, 0], [0] * 5, [0] * 5, *[[4, 4096, 0, 0, 0]] * 2, [0] * 5, [4, 4096, 0, 0, 0]
    ]  # fmt: skip
    assert [
        (e.job.id, e.start_s, e.placement, e.job.request.units, e.job.request.per_unit, e.job.walltime_s, e.job.queue)
        for e in seen.running
    ] == [
        (1, NOW - 50, ((0, 1),), 1, (2, 0, 0, 0, 0), 600, "workq"),
        (2, NOW, ((0, 1),), 1, (1, 1, 0, 0, 0), 3600, "workq"),
        (3, NOW, ((1, 1),), 2, (2, 0, 0, 1, 0), UNLIMITED_WALLTIME_S, "other"),
        (4, NOW, (), 1, (1, 1, 1, 1, 1), UNLIMITED_WALLTIME_S, ""),
        (7, NOW - 9, (), 1, (1, 0, 0, 0, 0), 600, "workq"),
    ]
    assert [
        (e.label, e.hold, e.job.submit_s, e.job.walltime_s, e.job.request.units, e.job.request.per_unit,
         words(e.job.ineligible), "".join(np.array(names)[seen.cluster.node_sets[e.job.request.node_set]]))
        for e in seen.pending
    ] == [
        ("5", Hold.PLUGIN, NOW - 100, 600, 1, (1, 0, 1, 0, 1), None, "abcdefh"),
        ("6", Hold.PLUGIN, NOW - 100, 601, 2, (1, 0, 0, 0, 0), None, "abcdfh"),
    ]  # fmt: skip
    assert seen.outages == (
        Outage("down", "down,offline", (2,), NOW, None),
        Outage("reserved", "R3.s", (6,), NOW, NOW + 1),
        Outage("reserved", "R1.s", (4,), NOW + 600, NOW + 900),
    )
    assert (seen.unmanaged, seen.notes, seen.ended, seen.otherwise) == ((), (), (), {})
    limits = seen.limits
    assert limits is not None
    assert {
        number: [(c.reason, c.whose, c.limit, c.amount, limits.used[c.counter]) for c in standing.checks]
        for number, standing in limits.standings.items()
    } == {
        5: [("max_run_res.lic", "all jobs", 2, 1, 0), ("max_run_res.ncpus", "user ada", 9, 1, 5),
            ("max_run", "group staff in queue workq", 7, 1, 3)],
        6: [("max_run_res.lic", "all jobs", 2, 0, 0), ("max_run_res.ncpus", "user ada", 9, 2, 5),
            ("max_run", "group staff in queue workq", 7, 1, 3)],
    }  # fmt: skip


@pytest.mark.parametrize(("where", "units", "otherwise"), [
    ("(a:ncpus=1)+(a:ncpus=1)", ((0, 2),), None), ("(a:ncpus=1)+(b:ncpus=1)", ((0, 1), (1, 1)), None),
    ("(a:ncpus=1:mem=5mb)+(a:ncpus=1)", ((0, 1),), True), ("(a:ncpus=1)", ((0, 1),), True),
    ("(a:ncpus=3)", ((0, 1),), True), ("(a:ncpus=2)", ((0, 2),), None),
])  # fmt: skip
def test_running_job_keeps_request_seen_while_pending(
    where: str, units: tuple[tuple[int, int], ...], otherwise: bool | None
) -> None:
    """Chunks on one vnode add up."""
    before = a_reading(reservations={}, jobs={"6.s": a_job("2:ncpus=1")})
    seen = seen_of(before, replace(before, jobs={"6.s": run(where, NOW, "2:ncpus=1")}))
    (found,) = seen.running
    assert (found.placement, 6 in seen.otherwise or None) == (units, otherwise)


def test_reads_complete_history_of_ended_jobs() -> None:
    past = {
        "1.s": run("(a:ncpus=2:mem=1mb)", NOW, job_state="F", resources_used={"walltime": "61"}, ctime=str(NOW + 5)),
        "2.s": run("(a:ncpus=2)", NOW, job_state="F"),
        "3[].s": run("(a:ncpus=2)", NOW, job_state="F", resources_used={"walltime": "9"}),
        "4[2].s": run("(gone:ncpus=2)", NOW - 20, job_state="X", resources_used={"walltime": "9"}),
    }  # fmt: skip
    machine = PbsTranslator(()).interpret_reading(a_reading().parsed()).context.machine
    assert [
        (each.job.id, each.job.submit_s, each.start_s, each.end_s, each.job.request.per_unit)
        for each in translate_ended_jobs({name: parse_job(record) for name, record in past.items()}, machine)
    ] == [(4 | 3 << 41, NOW - 100, NOW - 20, NOW - 11, (1, 1, 1, 1, 1)), (1, NOW, NOW, NOW + 61, (2, 1, 0, 0, 0))]
    assert np.array_equal(machine.capacity[0], [8, 7, 2, 0, 1024])
