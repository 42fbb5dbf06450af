"""Test the Slurm adapter on a real cluster: commands, their undoing, arrays, and faults of the child or controller."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.slurm.harness import TRANSPORT, Slurm, wait_until

pytestmark = pytest.mark.slurm

PRELUDE = """
import json, os, signal, sys, time
import numpy as np
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.slurm_options import Options, make_transport
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import StartOrder, UndoOrder

OPTIONS = Options(transport=os.environ["CPSCHED_TRANSPORT"], deadline_s=20.0)
transport = make_transport(OPTIONS)
backend = SlurmBackend(transport)

def pack(seen, wanted=None):
    '''Start orders for what fits, first fit from the last node on, and the free amounts that should be left.'''
    capacity, sets, names = seen.cluster.capacity, seen.cluster.node_sets, seen.cluster.node_names
    free, orders = seen.free.copy(), []
    for p in seen.pending:
        r = p.job.request
        if p.job.ineligible or p.hold != "plugin" or (wanted is not None and p.job.id not in wanted):
            continue
        need = capacity if r.exclusive else np.tile(np.array(r.per_unit), (len(free), 1))
        fit = [n for n in range(len(free))[::-1] if sets[r.node_set, n] and (free[n] >= need[n]).all()]
        if len(fit) >= r.units:
            for n in fit[: r.units]:
                free[n] -= need[n]
            nodes = tuple((names[n], 1) for n in sorted(fit[: r.units]))
            orders.append(StartOrder(p.job, nodes, p.start_settings))
    return orders, free

def undo(orders):
    return [UndoOrder(o.job_id, pinned=True, restore=o.settings.restore) for o in orders]

def until(holds, seconds=60, pinned=()):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen = backend.observe(pinned)
        if holds(seen):
            return seen
        time.sleep(0.2)
    raise SystemExit("not within the time: " + str(holds))
"""


def python(slurm: Slurm, code: str, *arguments: str) -> Any:
    """Run code with a new backend as user cpsched, and return the JSON value that it prints."""
    return slurm.python(PRELUDE + code, *arguments)


def submit(slurm: Slurm, *requests: str, script: str = "sleep 60") -> list[str]:
    """Submit jobs as alice, which the plugin holds, and return their ids in order."""
    slurm.plugin(on=True, begin_delay_s=0)
    lines = " ; ".join(f"sbatch --parsable -o /dev/null -t 5 {request} --wrap '{script}'" for request in requests)
    return slurm.run("bash", "-c", lines, user="alice").split()


START_ALL = """
seen = backend.observe()
orders, free = pack(seen)
outcomes = backend.start(orders)
label = {p.job.id: p.label for p in seen.pending}
seen = until(lambda seen: {o.job.id for o in orders} <= {r.job.id for r in seen.running})
print(json.dumps({
    "decided": {label[o.job.id]: sorted(name for name, _ in o.nodes) for o in orders},
    "cores": {label[o.job.id]: o.job.request.units * o.job.request.per_unit[0] for o in orders},
    "seen": {label[r.job.id]: sorted(seen.cluster.node_names[n] for n, _ in r.placement) for r in seen.running},
    "outcomes": [o.result for o in outcomes], "free": seen.free.tolist(), "expected": free.tolist()}))
"""


@pytest.mark.conformance
def test_slurm_allocates_what_was_decided(slurm: Slurm) -> None:
    """Accounting confirms the nodes and cores of every modelled kind of request, and the nodes confirm all amounts."""
    shapes = [
        "-n1", "-n6", "-N2 -n4", "-N4 -n8 -c2", "-n20", "-N2", "--gpus=1", "--gres=gpu:1", "-n2 --gpus-per-task=1",
        "-N1 --mem=3G", "-n2 --mem-per-cpu=500", "-C rack1", "-p gpu -n3", "-p short", "-x n1",
        "-N1 -n4 --ntasks-per-node=4", "--array=0-3",
    ]  # fmt: skip
    submit(slurm, *shapes)
    told = python(slurm, START_ALL)
    assert len(told["decided"]) >= len(shapes) - 3
    assert set(told["outcomes"]) == {"done"}
    assert told["seen"] == told["decided"]
    assert told["free"] == told["expected"]
    starts = told["decided"]
    records = wait_until(
        lambda: (
            (seen := slurm.sacct(starts)).keys() >= starts.keys() and all(job.nodes for job in seen.values()) and seen
        ),
        20,
        "accounting has the starts",
    )
    assert {job: sorted(records[job].nodes) for job in told["decided"]} == told["decided"]
    assert {job: records[job].cpus for job in told["cores"]} == told["cores"]


@pytest.mark.conformance
def test_exclusive_job_takes_whole_node(slurm: Slurm) -> None:
    job, _ = submit(slurm, "--exclusive", "-N2 --exclusive")
    told = python(slurm, START_ALL)
    assert told["seen"] == told["decided"]
    assert len(told["decided"]) == 2
    taken = [node for nodes in told["decided"].values() for node in nodes]
    assert len(taken) == len(set(taken)) == 3
    assert told["free"] == told["expected"]
    assert job in told["decided"]


ROLL_BACK = """
from dataclasses import replace
seen = backend.observe()
orders, _ = pack(replace(seen, free=seen.cluster.capacity.copy()))
backend.start(orders)
ids = {o.job_id for o in orders}
until(lambda seen: all(p.pinned and p.hold == "none" for p in seen.pending), pinned=ids)
held = backend.hold(undo(orders))
until(lambda seen: all(p.hold == "plugin" and not p.pinned for p in seen.pending), pinned=ids)
print(json.dumps([[o.result, o.detail] for o in held]))
"""


def settings(record: dict[str, str]) -> dict[str, str]:
    """Return the fields of a job's request."""
    fields = ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "ReqNodeList", "NtasksPerN:B:S:C", "Priority", "JobState")
    found = {field: record[field] for field in fields if field in record}
    # No maximum number of nodes is equivalent to one node per task. Slurm cannot clear the maximum once it is set.
    least, _, most = found["NumNodes"].partition("-")
    return found | {"NumNodes": f"{least}-{most or found['NumTasks']}"}


@pytest.mark.conformance
def test_failed_start_is_undone_completely(slurm: Slurm) -> None:
    """On drained nodes, released jobs stay pending. Held again, they have their original requests."""
    jobs = submit(slurm, "-n4", "-N2 -n4", "-n1", "-n20", "-n3 -c2", "-N2 -n4 -c2", "-n4 --ntasks-per-node=4")
    before = [settings(slurm.record(job)) for job in jobs]
    for node in ("n1", "n2", "n3", "n4"):
        slurm.drain(node)
    assert python(slurm, ROLL_BACK) == [["done", ""]] * len(jobs)
    assert [settings(slurm.record(job)) for job in jobs] == before


@pytest.mark.conformance
def test_keeps_owner_holds_and_node_lists(slurm: Slurm) -> None:
    held, chosen, plain = submit(slurm, "-H -n1", "-w n2", "-n1")
    told = python(
        slurm,
        """
seen = backend.observe()
orders = [UndoOrder(int(a)) for a in sys.argv[1:]]
print(json.dumps({
    "hold": [o.result for o in backend.hold(orders)],
    "back": [o.result for o in backend.release(orders)],
    "left": {l.label: l.reason.code for l in seen.unmanaged},
}))""",
        held,
        chosen,
        plain,
    )
    assert told["hold"] == ["refused", "done", "done"]
    assert told["back"] == ["refused", "done", "done"]
    assert chosen in told["left"]
    slurm.wait_for_state([chosen, plain], "RUNNING", 15)
    assert slurm.job(held).held
    assert slurm.job(chosen).nodes == "n2"


@pytest.mark.conformance
def test_neither_starts_nor_holds_running_job(slurm: Slurm) -> None:
    """Setting a node list on a running job would shrink the job to those nodes."""
    (job,) = submit(slurm, "-N2")
    told = python(
        slurm,
        """
seen = backend.observe()
orders, _ = pack(seen)
first = backend.start(orders)
until(lambda seen: len(seen.running) == 1)
again = backend.start([StartOrder(orders[0].job, (("n1", 1),))])
hold = backend.hold(undo(orders[:1]))
print(json.dumps([first[0].result, again[0].result, hold[0].result]))""",
    )
    assert told == ["done", "refused", "refused"]
    assert slurm.record(job)["NumNodes"] == "2"
    assert slurm.record(job)["JobState"] == "RUNNING"


@pytest.mark.conformance
def test_requeued_job_with_old_pin_is_adopted(slurm: Slurm) -> None:
    (job,) = submit(slurm, "-n2 --requeue")
    told = python(
        slurm,
        """
orders, _ = pack(backend.observe())
backend.start(orders)
until(lambda seen: len(seen.running) == 1)
number = orders[0].job.id
os.system(f"scontrol requeue {number}")
seen = until(lambda seen: seen.pending, 40, {number})
found = [(p.hold.value, p.pinned) for p in seen.pending]
held = backend.hold(undo(orders[:1]))
seen = backend.observe()
print(json.dumps([found, held[0].result, [(p.hold.value, p.pinned) for p in seen.pending]]))""",
    )
    found, result, after = told
    assert found == [["none", True]]
    assert result == "done"
    assert after == [["plugin", False]]
    assert slurm.job(job).held


@pytest.mark.conformance
def test_some_array_tasks_start_and_others_wait(slurm: Slurm) -> None:
    (array,) = submit(slurm, "--array=0-5%3 -n2")
    told = python(
        slurm,
        """
seen = backend.observe()
label = {p.job.id: p.label for p in seen.pending}
eligible = {p.job.id for p in seen.pending if p.job.ineligible is None}
orders, _ = pack(seen, eligible)
backend.start(orders[:2])
seen = until(lambda seen: len(seen.running) == 2)
print(json.dumps([sorted(label[i] for i in eligible), sorted(label[r.job.id] for r in seen.running),
    {p.label: [p.hold.value, p.job.ineligible is None] for p in seen.pending}]))""",
    )
    eligible, running, waiting = told
    tasks = [f"{array}_{task}" for task in range(6)]
    assert eligible == tasks[:3]
    assert running == tasks[:2]
    assert waiting == {tasks[2]: ["plugin", True], **{task: ["plugin", False] for task in tasks[3:]}}


@pytest.mark.conformance
def test_ended_jobs_are_reported_and_in_history(slurm: Slurm) -> None:
    jobs = submit(slurm, "-n2", "-N2", "--array=0-1", script="sleep 2")
    told = python(
        slurm,
        """
seen = backend.observe()
label = {p.job.id: p.label for p in seen.pending}
orders, _ = pack(seen)
backend.start(orders)
ended = []
def over(seen):
    ended.extend(seen.ended)
    return len(ended) == len(orders)
until(over, 40)
time.sleep(2)
past = {e.job.id for e in SlurmBackend(make_transport(OPTIONS)).read_history()}
print(json.dumps({label[e.job.id]: [e.run_s, e.job.id in past, e.job.user] for e in ended}))""",
    )
    assert set(told) == {jobs[0], jobs[1], f"{jobs[2]}_0", f"{jobs[2]}_1"}
    assert all(1 <= run_s <= 10 and known and user == "alice" for run_s, known, user in told.values())


QUICK = """
transport = make_transport(OPTIONS.model_copy(update={"deadline_s": 5.0}))
backend = SlurmBackend(transport)
"""
"""Code that creates a backend with a short deadline."""


@pytest.mark.skipif(TRANSPORT == "cli", reason="the transport has no process that stays")
def test_killed_or_hung_child_fails_one_call(slurm: Slurm) -> None:
    told = python(
        slurm,
        QUICK
        + """
import threading
backend.observe()
first = transport.reader.client.pid
os.kill(first, signal.SIGSTOP)
began = time.monotonic()
kinds = []
try:
    backend.observe()
except BackendError as error:
    kinds.append(type(error).__name__)
waited = time.monotonic() - began
backend.observe()
second = transport.reader.client.pid
os.kill(second, signal.SIGSTOP)
threading.Timer(0.5, os.kill, (second, signal.SIGKILL)).start()
try:
    backend.observe()
except BackendError as error:
    kinds.append(type(error).__name__)
seen = backend.observe()
print(json.dumps([kinds, waited, len({first, second, transport.reader.client.pid}), len(seen.cluster.node_names)]))""",
    )
    kinds, waited, children, nodes = told
    assert kinds == ["BackendTimeout", "BackendDied"]
    assert 4 < waited < 8
    assert (children, nodes) == (3, 4)


def test_stopped_controller_is_error_within_deadline(slurm: Slurm) -> None:
    python(slurm, "backend.observe()")
    look = f"""{QUICK}
began = time.monotonic()
try:
    backend.observe()
    kind = "answered"
except BackendError as error:
    kind = type(error).__name__
print(json.dumps([kind, time.monotonic() - began]))"""
    slurm.pause("slurmctld")
    try:
        kind, waited = python(slurm, look)
    finally:
        slurm.unpause("slurmctld")
    assert kind == "BackendTimeout"
    assert waited < 8
    slurm.wait_for_controller()
    began_s = time.monotonic()
    slurm.stop("slurmctld")
    try:
        kind, waited = python(slurm, look)
    finally:
        slurm.start("slurmctld")
    assert kind in ("BackendUnavailable", "BackendTimeout")
    assert waited < 8
    slurm.wait_for_controller()
    assert python(slurm, look)[0] == "answered"
    assert time.monotonic() - began_s < 60


@pytest.mark.conformance
def test_doctor_accepts_documented_cluster_and_names_faults(slurm: Slurm) -> None:
    check = "print(json.dumps({c.name: [c.ok, c.required, c.fix] for c in backend.run_checks()}))"
    told = python(slurm, check)
    assert [name for name, (ok, _, _) in told.items() if not ok] == [], told
    as_nobody = slurm.python(PRELUDE + check, user="alice")
    assert [name for name, (ok, required, _) in as_nobody.items() if required and not ok] == ["privilege"]
    assert re.search("AdminLevel=Operator", as_nobody["privilege"][2])
