import sqlite3
import zlib

import numpy as np
import pytest

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Cluster, EndedJob, Scene, Wait
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_bridge.errors import UnknownRound
from cpsched_bridge.ports import Outcome
from cpsched_bridge.report import CycleReport, Happening
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import Aside
from cpsched_bridge.store.redecide import decide_again
from cpsched_bridge.store.rounds import (
    cluster_from_json,
    cluster_to_json,
    decision_to_json,
    job_from_json,
    job_to_json,
    pack,
    unpack,
)
from tests.builders import a_cluster, a_job, a_running
from tests.fakes import FirstFit

POLICY = PolicySpec("easy", "last-two", {}, {}, "one-second")


def a_scene(now_s=100, queue=(), running=(), cluster=None):
    cluster = cluster or a_cluster()
    free = cluster.capacity.copy()
    for each in running:
        for node, units in each.placement:
            free[node] -= units * np.array(each.job.request.per_unit)
    return Scene(now_s, cluster, free, tuple(queue), tuple(running))


def write(journal, number, scene, policy=None, record=POLICY, **facts):
    policy = policy or record.build()
    report = CycleReport(number, "control", 1e9, seconds={"decide": 0.5}, **facts)
    report.snapshot = policy.estimated(scene)
    report.decision = policy.decide(report.snapshot)
    report.packed_decision = pack(decision_to_json(report.decision, report.snapshot))
    journal.write_round(report, record)
    return report.decision


def test_a_round_is_read_back_as_it_was(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    queue = [a_job(1, units=2, per_unit=3, user="ada", name="run1", queue="long"), a_job(2, per_unit=4, distinct=True)]
    running = [a_running(a_job(9, per_unit=4), ((0, 1),), start_s=50)]
    sent = [("start", Outcome(1, "refused", "gone"))]
    decision = write(journal, 7, a_scene(queue=queue, running=running), outcomes=sent)
    record = Journal(tmp_path / "journal.sqlite", read_only=True).read(7)
    assert (record.now_s, record.mode, record.policy) == (100, "control", POLICY)
    assert record.queue == tuple(queue)
    assert record.running == tuple(running)
    assert record.free.tolist() == [[0], [4], [4], [4]]
    assert record.estimates == {1: 100, 2: 100, 9: 100}
    assert record.starts == {1: ((1, 1), (2, 1)), 2: ((3, 1),)}
    assert record.effort == decision.effort
    assert journal.outcomes(7) == sent
    assert journal.seconds(7) == {"decide": 0.5}


def test_a_round_that_the_disk_did_not_take_leaves_later_rounds_whole(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    scene = a_scene(queue=[a_job(1)])
    sent = [("start", Outcome(1, None, "the outcome of no command"))]
    with pytest.raises(sqlite3.IntegrityError):
        write(journal, 1, scene, outcomes=sent)
    write(journal, 2, scene)
    assert list(journal.numbers()) == [2]
    assert journal.read(2).queue == (a_job(1),)


def test_what_a_job_waits_for_is_kept(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    write(journal, 1, a_scene(queue=[a_job(1, per_unit=9)]), Policy(WalltimePredictor(), FirstFit()))
    assert journal.read(1).waits == {1: Wait("resources")}


def test_a_recorded_decision_is_taken_again_whatever_the_predictor_has_learned_since(tmp_path):
    journal, policy = Journal(tmp_path / "journal.sqlite"), POLICY.build()
    running = [a_running(a_job(9, per_unit=4, user="ada"), ((0, 1),), start_s=50)]
    queue = [a_job(1, units=4, per_unit=4, user="ada"), a_job(2, per_unit=4, walltime_s=40)]
    first = write(journal, 1, a_scene(queue=queue, running=running), policy)
    policy.learn(EndedJob(a_job(9, user="ada"), 0, 5))
    result = decide_again(journal.read(1))
    assert result.same
    assert len(result.starts) == len(first.starts) == 1


def test_a_replay_that_differs_says_where(tmp_path):
    """The journal says that job 1 was started elsewhere than the policy would."""
    journal = Journal(tmp_path / "journal.sqlite")

    class Last(Dispatcher):
        def decide(self, snapshot, need="plan"):
            found = FirstFit().decide(snapshot)
            object.__setattr__(found.starts, "nodes", found.starts.nodes + 3)
            return found

    write(journal, 1, a_scene(queue=[a_job(1)]), Policy(WalltimePredictor(), Last()))
    result = decide_again(journal.read(1))
    assert not result.same
    assert result.differences[0] == "start of job 1: recorded ((3, 1),), now ((0, 1),)"


def test_rounds_of_a_dispatcher_that_keeps_its_memory_to_itself_are_not_replayed(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    write(journal, 1, a_scene(queue=[a_job(1)]), replayable=False)
    assert not decide_again(journal.read(1)).same
    assert "easy learns" in decide_again(journal.read(1)).skipped


OLD_POLICY = (
    b'{"dispatcher":"easy","dispatcher_settings":{"allocation":"best-fit"},"overrun":"one-second",'
    b'"predictor":"last-two","predictor_settings":{}}'
)
"""A policy as earlier versions wrote it down."""


def test_a_round_that_an_earlier_version_recorded_is_decided_again(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    write(journal, 1, a_scene(queue=[a_job(1)]))
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        found = "select policy from rounds where round = 1"
        db.execute(f"update things set data = ? where key = ({found})", (zlib.compress(OLD_POLICY, 1),))
    record = journal.read(1)
    assert record.policy == PolicySpec("easy", "last-two", {"allocation": "best-fit"}, {}, "one-second")
    assert decide_again(record).same


class Amnesiac(FirstFit):
    def recall(self, memory):
        raise ValueError("no idea")


def test_a_round_whose_dispatcher_cannot_recall_what_it_learned_is_not_replayed(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    amnesiac = PolicySpec(f"{__name__}:Amnesiac")
    write(journal, 1, a_scene(queue=[a_job(1)]), record=amnesiac, packed_memory=pack({"ada": 1}))
    skipped = decide_again(journal.read(1)).skipped
    assert skipped == "what was learned cannot be recalled: dispatcher Amnesiac: ValueError: no idea"


def test_an_unknown_round_is_an_error_that_tells_what_there_is(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    with pytest.raises(UnknownRound, match="round=3: not in the journal; it is empty"):
        journal.read(3)
    write(journal, 5, a_scene())
    with pytest.raises(UnknownRound, match="it holds rounds 5 to 5"):
        journal.read(3)


def test_a_quiet_hour_costs_next_to_nothing(tmp_path):
    """Rounds in which nothing changes but the time share what they depended on; what is left is under a kilobyte."""
    journal = Journal(tmp_path / "journal.sqlite")
    running = [a_running(a_job(99, units=4, per_unit=4, walltime_s=10_000), tuple((n, 1) for n in range(4)))]
    queue = [a_job(i, per_unit=3, user=f"user{i}") for i in range(1, 60)]
    sizes = []
    for number in range(1, 601):
        write(journal, number, a_scene(now_s=number, queue=queue, running=running))
        sizes.append(journal.size_bytes())
    assert (sizes[-1] - sizes[199]) / 400 < 1000, "bytes per round"
    assert journal.read(600).queue == tuple(queue)


def test_the_size_is_bounded_and_what_is_left_is_whole(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite", max_mib=0.25)
    for number in range(1, 1025):
        queue = [a_job(number + i, units=2, per_unit=3, user=f"user{number}") for i in range(15)]
        write(journal, number, a_scene(now_s=number, queue=queue))
        journal.write_events(0.0, number, [Happening("mode", "control")])
    assert journal.size_bytes() <= 0.25 * 2**20
    numbers = list(journal.numbers())
    assert numbers[-1] == 1024
    assert numbers == list(range(numbers[0], 1025))
    assert all(journal.read(number).queue[0].id == number for number in numbers)
    assert min(event.round for event in journal.events(limit=10_000)) >= numbers[0]
    named = journal._db.execute("select count(*) from jobs").fetchone()[0]
    assert named <= 15 * len(numbers)


def test_the_list_of_jobs_not_decided_on_is_replaced_as_a_whole(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    journal.write_asides([Aside(1, "unsupported", "array"), Aside(2, "ineligible", "dependency")])
    journal.write_asides([Aside(2, "ineligible", "dependency"), Aside(3, "held", "held by its owner")])
    assert [a.job_id for a in journal.asides()] == [2, 3]
    assert [a.job_id for a in journal.asides("held")] == [3]


def test_jobs_and_clusters_survive_json():
    cluster = Cluster.of([[4, 8], [2, 0]], ("cores", "gpus"), ("a", "b"), {"gpu": [0]})
    back = cluster_from_json(unpack(pack(cluster_to_json(cluster))))
    assert (back.node_names, back.resources, back.node_set_names) == (("a", "b"), ("cores", "gpus"), ("all", "gpu"))
    assert np.array_equal(back.capacity, cluster.capacity)
    assert np.array_equal(back.node_sets, cluster.node_sets)
    job = a_job(3, units=2, per_unit=(1, 2), exclusive=True, node_set=1, user="ada", account="x", ineligible="held")
    assert job_from_json(unpack(pack(job_to_json(job)))) == job
