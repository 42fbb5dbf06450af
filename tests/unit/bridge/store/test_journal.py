import dataclasses
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import (
    NO_STARTS,
    BlockRule,
    BlockTopology,
    Cluster,
    ClusterState,
    Decision,
    Effort,
    EndedJob,
    PendingCode,
    PendingReason,
    Starts,
    Wait,
)
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import UnknownRound
from cpsched_bridge.ports import Outcome
from cpsched_bridge.store import journal as journals
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import JournalJobRecord, UnscheduledJob
from cpsched_bridge.store.round_records import (
    cluster_from_json,
    cluster_to_json,
    decision_to_json,
    job_from_json,
    job_to_json,
    parse_wait,
    round_trip_json,
)
from cpsched_bridge.store.round_replay import replay_round
from tests.builders import a_cluster, a_cycle_report, a_job, a_pending, a_running, an_observation, free_beside
from tests.fakes import FakeCluster, FirstFit
from tests.stores import all_in_the_file, change, full_disk, rows, setting

POLICY = PolicySpec("easy", "last-two", {}, {}, "one-second")


def a_scene(now_s=100, queue=(), running=(), cluster=None):
    cluster = cluster or a_cluster()
    return ClusterState(now_s, cluster, free_beside(cluster, running), tuple(queue), tuple(running))


def write(journal, number, scene, policy=None, record=POLICY, **facts):
    policy = policy or record.build()
    snapshot = policy.add_estimates(scene)
    decision = policy.decide(snapshot)
    made = {"snapshot": snapshot, "decision": decision, "recorded": decision_to_json(decision, snapshot)}
    journal.write_round(a_cycle_report(number, at_unix_s=1e9, seconds={"decide": 0.5}, **made, **facts), record)
    return decision


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal.sqlite")


def test_reads_round_back_unchanged(journal, tmp_path):
    queue = [a_job(1, units=2, per_unit=3, user="ada", name="run1", queue="long"), a_job(2, per_unit=4, distinct=True)]
    running = [a_running(a_job(9, per_unit=4), ((0, 1),), start_s=50)]
    sent = [("start", Outcome(1, "refused", "gone"))]
    decision = write(journal, 7, a_scene(queue=queue, running=running), outcomes=sent)
    record = Journal(tmp_path / "journal.sqlite", read_only=True).read_round(7)
    assert (record.now_s, record.mode, record.policy, record.free.tolist()) == (
        100,
        "control",
        POLICY,
        [[0], [4], [4], [4]],
    )
    assert (record.queue, record.running, record.outcomes) == (tuple(queue), tuple(running), sent)
    assert (record.estimates, record.seconds) == ({1: 100, 2: 100, 9: 100}, {"decide": 0.5})
    assert (record.starts, record.effort) == ({1: ((1, 1), (2, 1)), 2: ((3, 1),)}, decision.effort)


def test_unwritten_round_leaves_later_ones_complete(journal):
    """What changed since a round that is not there would be no use: the next one is written in full."""
    write(journal, 1, a_scene(queue=[a_job(1)]))
    with full_disk(journal), pytest.raises(sqlite3.OperationalError):
        write(journal, 2, a_scene(queue=[a_job(1), a_job(2)]))
    write(journal, 3, a_scene(queue=[a_job(1), a_job(2), a_job(3)]))
    assert list(journal.iterate_round_numbers()) == [1, 3]
    assert journal.read_round(3).queue == (a_job(1), a_job(2), a_job(3))


def test_stores_wait_reasons(journal):
    write(journal, 1, a_scene(queue=[a_job(1, per_unit=9)]), Policy(WalltimePredictor(), FirstFit()))
    assert journal.read_round(1).waits == {1: Wait("resources")}


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ('7,9 ["resources", 0, 2]', Wait(PendingReason(PendingCode.RESOURCES, (0, 2)), (7, 9))),
        (' ["never", "requests 9"]', Wait(PendingReason(PendingCode.NEVER, ("requests 9",)))),
        (' ["other", "not enough luck"]', Wait("not enough luck")),
        (" [sic] mercury", Wait("[sic] mercury")),
        (' ["of a later version", 1]', Wait('["of a later version", 1]')),
        (' ["resources"]', Wait('["resources"]')),
    ],
)  # fmt: skip
def test_reads_wait_from_code_or_text_of_a_plugin(text, wait):
    assert parse_wait(text) == wait


def test_writes_wait_as_code():
    wait = Wait(PendingReason(PendingCode.RESOURCES, (0, 2)), (7, 9))
    decision = Decision(NO_STARTS, Effort("test"), None, {1: wait})
    recorded = decision_to_json(decision, POLICY.build().add_estimates(a_scene(queue=[a_job(1)])))
    assert recorded["explained"]["waits"] == {"1": '7,9 ["resources", 0, 2]'}


def test_replays_decision_regardless_of_later_learning(tmp_path):
    journal, policy = Journal(tmp_path / "journal.sqlite"), POLICY.build()
    running = [a_running(a_job(9, per_unit=4, user="ada"), ((0, 1),), start_s=50)]
    queue = [a_job(1, units=4, per_unit=4, user="ada"), a_job(2, per_unit=4, walltime_s=40)]
    first = write(journal, 1, a_scene(queue=queue, running=running), policy)
    policy.learn(EndedJob(a_job(9, user="ada"), 0, 5))
    result = replay_round(journal.read_round(1))
    assert result.is_same_decision
    assert len(result.starts) == len(first.starts) == 1


def test_differing_replay_names_difference(journal):
    """The journal says that job 1 was started elsewhere than the policy would."""

    class Last(Dispatcher):
        def decide(self, snapshot, need="plan"):
            found = FirstFit().decide(snapshot)
            object.__setattr__(found.starts, "nodes", found.starts.nodes + 3)
            return found

    write(journal, 1, a_scene(queue=[a_job(1)]), Policy(WalltimePredictor(), Last()))
    result = replay_round(journal.read_round(1))
    assert not result.is_same_decision
    assert result.differences[0] == "start of job 1: recorded ((3, 1),), now ((0, 1),)"


def test_does_not_replay_dispatcher_with_private_memory(journal):
    write(journal, 1, a_scene(queue=[a_job(1)]), replayable=False)
    assert not replay_round(journal.read_round(1)).is_same_decision
    assert "easy learns" in replay_round(journal.read_round(1)).skipped


class Amnesiac(FirstFit):
    def recall(self, memory):
        raise ValueError("no idea")


def test_does_not_replay_dispatcher_that_cannot_recall(journal):
    amnesiac = PolicySpec(f"{__name__}:Amnesiac")
    write(journal, 1, a_scene(queue=[a_job(1)]), record=amnesiac, memory={"ada": 1})
    skipped = replay_round(journal.read_round(1)).skipped
    assert skipped.startswith("the memory cannot be restored: dispatcher Amnesiac: ValueError: no idea")


def test_unknown_round_error_names_stored_range(journal):
    with pytest.raises(UnknownRound, match="round=3: must be in the journal; the journal is empty"):
        journal.read_round(3)
    write(journal, 5, a_scene())
    with pytest.raises(UnknownRound, match="the journal contains rounds 5 to 5"):
        journal.read_round(3)


def test_hour_of_unchanged_rounds_is_small(journal):
    """Rounds in which nothing changes but the time share what they depended on; what is left is under a kilobyte."""
    running = [a_running(a_job(99, units=4, per_unit=4, walltime_s=10_000), tuple((n, 1) for n in range(4)))]
    queue = [a_job(i, per_unit=3, user=f"user{i}") for i in range(1, 60)]
    sizes = []
    for number in range(1, 301):
        write(journal, number, a_scene(now_s=number, queue=queue, running=running))
        sizes.append(journal.compute_used_size_bytes())
    assert (sizes[-1] - sizes[99]) / 200 < 300, "bytes per round"
    assert journal.read_round(300).queue == tuple(queue)


def test_size_is_bounded_and_rest_is_complete(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite", max_mib=0.125)
    for number in range(1, 401):
        queue = [a_job(number + i, units=2, per_unit=3, user=f"user{number}") for i in range(15)]
        write(journal, number, a_scene(now_s=number, queue=queue))
        journal.write_events(0.0, number, [CycleEvent("mode", "control")])
    assert journal.compute_used_size_bytes() <= 0.125 * 2**20
    numbers = list(journal.iterate_round_numbers())
    assert 1 < numbers[0] < numbers[-1] == 400
    assert numbers == list(range(numbers[0], 401))
    assert all(journal.read_round(number).queue[0].id == number for number in numbers)
    assert min(event.round for event in journal.list_events(limit=10_000)) >= numbers[0]


def test_replaces_whole_list_of_unscheduled_jobs(journal):
    journal.write_unscheduled_jobs(
        [UnscheduledJob(1, "unmanaged", "array"), UnscheduledJob(2, "ineligible", "dependency")]
    )
    journal.write_unscheduled_jobs(
        [UnscheduledJob(2, "ineligible", "dependency"), UnscheduledJob(3, "held", "held by its owner")]
    )
    assert [a.job_id for a in journal.list_unscheduled_jobs()] == [2, 3]
    assert [a.job_id for a in journal.list_unscheduled_jobs("held")] == [3]


def test_json_roundtrip_of_jobs_and_clusters():
    cluster = Cluster.of([[4, 8], [2, 0]], ("cores", "gpus"), ("a", "b"), {"gpu": [0]})
    back = cluster_from_json(round_trip_json(cluster_to_json(cluster)))
    assert (back.node_names, back.resources, back.node_set_names) == (("a", "b"), ("cores", "gpus"), ("all", "gpu"))
    assert np.array_equal(back.capacity, cluster.capacity)
    assert np.array_equal(back.node_sets, cluster.node_sets)
    dated = dataclasses.replace(cluster, epoch_s=7)
    assert cluster_from_json(round_trip_json(cluster_to_json(dated))).epoch_s == 7
    different = dataclasses.replace(cluster, weights=np.array([5, 1]), leaf_switches=np.array([0, 2]))
    found = cluster_from_json(round_trip_json(cluster_to_json(different)))
    assert (back.weights, found.weights.tolist()) == (None, [5, 1])
    assert (back.leaf_switches, found.leaf_switches.tolist()) == (None, [0, 2])
    topology, rules = BlockTopology((0, 1), 2, 3, 4), (BlockRule(0, 1, True), *[None] * (len(cluster.node_sets) - 1))
    blocks = dataclasses.replace(cluster, block_topologies=(topology,), node_set_blocks=rules)
    found = cluster_from_json(round_trip_json(cluster_to_json(blocks)))
    assert (found.block_topologies, found.node_set_blocks) == ((topology,), rules)
    reason = PendingReason(PendingCode.CLUSTER, ("QOSMaxJobs", "8 of 8 taken"))
    job = a_job(3, units=2, per_unit=(1, 2), exclusive=True, node_set=1, user="ada", account="x", ineligible=reason)
    assert job_from_json(round_trip_json(job_to_json(job))) == job


def test_old_ineligible_text_becomes_reason_other():
    row = round_trip_json(job_to_json(a_job(3)))
    row[8] = "held"
    assert job_from_json(row).ineligible == PendingReason(PendingCode.OTHER, ("held",))


class Rotating(FirstFit):
    """Depends on the round before: the job that was first is last now, and only the first may start."""

    def __init__(self):
        self.order = []

    def memory(self):
        return {"order": self.order}

    def recall(self, memory):
        self.order = memory["order"]

    def decide(self, snapshot, need="plan"):
        ids = [job.id for job in snapshot.queued_jobs()]
        self.order = [*self.order[1:], *(id for id in ids if id not in self.order), *self.order[:1]]
        first = next(id for id in self.order if id in ids)
        slot = snapshot.queue[ids.index(first)]
        return Decision(Starts.of({int(slot): ((0, 1),)}), Effort("rotating"))


def test_replays_each_round_of_learning_dispatcher(bridge_at):
    """Recorded is what it knew before it decided, not after."""
    cluster = FakeCluster.of(*(a_job(id) for id in (1, 2, 3)), cluster=a_cluster(nodes=1, cores=1))
    bridge = bridge_at(cluster, mode="shadow", dispatcher=Rotating(), policy_spec=PolicySpec(f"{__name__}:Rotating"))
    started = [list(bridge.cycle().decided.starts) for _ in range(5)]
    assert started == [[1], [2], [3], [1], [2]]
    assert [bridge.journal.read_round(n).memory["order"] for n in (1, 2, 3)] == [[], [1, 2, 3], [2, 3, 1]]
    assert all(replay_round(bridge.journal.read_round(number)).is_same_decision for number in (3, 1, 5, 2, 4))


def test_reads_rounds_in_any_order_across_segments(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "MAX_SEGMENT_ROUNDS", 4)
    for number in range(1, 15):
        write(journal, number, a_scene(now_s=number, queue=[a_job(i) for i in range(number, number + 5)]))
    assert [row[0] for row in rows(tmp_path / "journal.sqlite", "select first from segments")] == [1, 5, 9, 13]
    reader = Journal(tmp_path / "journal.sqlite", read_only=True)
    for number in (14, 1, 4, 5, 3, 13, 12, 9, 9, 2):
        record = reader.read_round(number)
        assert (record.number, record.now_s, record.queue[0].id) == (number, number, number)
        assert replay_round(record).is_same_decision


def test_new_cluster_or_policy_starts_segment(journal, tmp_path):
    other = PolicySpec("fcfs")
    small, same, large = a_cluster(), a_cluster(), a_cluster(nodes=5)
    for number, (cluster, record) in enumerate([(small, POLICY), (same, POLICY), (large, POLICY), (large, other)], 1):
        write(journal, number, a_scene(cluster=cluster, queue=[a_job(1)]), record=record)
    assert [row[0] for row in rows(tmp_path / "journal.sqlite", "select first from segments")] == [1, 3, 4]
    found = [journal.read_round(number) for number in (1, 2, 3, 4)]
    assert [record.cluster.size for record in found] == [4, 4, 5, 5]
    assert [record.policy for record in found] == [POLICY, POLICY, POLICY, other]


def test_prunes_old_rounds_with_their_data(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "MAX_SEGMENT_ROUNDS", 10)
    journal = Journal(tmp_path / "journal.sqlite", keep_days=1.0)
    for number in range(1, 41):
        write(journal, number, a_scene(now_s=number, queue=[a_job(number)]), started=[(a_job(900 + number), number)])
        journal.write_events(0.0, number, [CycleEvent("mode", "control", number)])
    change(tmp_path / "journal.sqlite", "update rounds set at_unix_s = 1000.0 + round")
    assert journal.prune(1000.0 + 86_400 + 10) == 0, "the tenth is one day old, and not older"
    assert journal.prune(1000.0 + 86_400 + 10.25) == 10
    assert journal.prune(1000.0 + 86_400 + 25) == 10, "a segment goes as a whole, when its last round is too old"
    assert list(journal.iterate_round_numbers()) == list(range(21, 41))
    assert min(event.round for event in journal.list_events(limit=100)) == 21
    assert (journal.find_observed_job("920"), journal.find_observed_job("921").round) == (None, 21)
    assert journal.read_round(21).queue == (a_job(21),)
    assert journal.read_round(40).queue == (a_job(40),)


def test_prunes_plan_before_round_but_keeps_digest(journal, monkeypatch):
    monkeypatch.setattr(journals, "MAX_SEGMENT_ROUNDS", 4)
    monkeypatch.setattr(journals, "MIN_EXPLAINED_ROUNDS", 8)
    for number in range(1, 31):
        write(journal, number, a_scene(now_s=number, queue=[a_job(number, units=4, per_unit=4), a_job(99, per_unit=3)]))
    explained = [number for number in journal.iterate_round_numbers() if journal.read_round(number).explained]
    assert explained == list(range(explained[0], 31))
    assert 8 <= len(explained) <= 16
    old = journal.read_round(2)
    assert (old.plan, old.waits) == ({}, {})
    assert old.plan_digest
    assert replay_round(old).is_same_decision
    assert replay_round(old).plan == {2: 2, 99: 102}
    other = dataclasses.replace(old, plan_digest="0" * 16)
    assert replay_round(other).differences == (
        "plan: differs from the recorded plan, of which only a digest is stored",
    )


def test_reopened_journal_continues_in_new_segment(tmp_path):
    for number in (1, 2):
        journal = Journal(tmp_path / "journal.sqlite")
        assert journal.last_round == number - 1
        write(journal, number, a_scene(queue=[a_job(number)]))
        journal.close()
    journal = Journal(tmp_path / "journal.sqlite")
    assert [journal.read_round(number).queue for number in (1, 2)] == [(a_job(1),), (a_job(2),)]


def test_file_shrinks_after_pruning(journal, tmp_path):
    """The file shrinks with its data: a journal that is too large must not fill the disk for good."""
    write(journal, 1, a_scene(queue=[a_job(1)]))
    journal.write_events(0.0, 1, [CycleEvent("odd", "x" * 1000, id) for id in range(1000)])
    all_in_the_file(tmp_path / "journal.sqlite")
    before = (tmp_path / "journal.sqlite").stat().st_size
    journal.close()
    journal = Journal(tmp_path / "journal.sqlite", max_mib=1e-6)  # which begins another segment
    write(journal, 2, a_scene(queue=[a_job(1)]))
    assert journal.prune(1e9) == 1
    all_in_the_file(tmp_path / "journal.sqlite")
    assert (tmp_path / "journal.sqlite").stat().st_size < before / 4


def test_past_job_keeps_name_nodes_and_times(journal):
    """The name is known while the job waits, its nodes while it runs, its end afterwards."""
    task, plain = a_job(7, units=3, user="ada", submit_s=5), a_job(8, user="bob")
    write(
        journal,
        1,
        a_scene(queue=[task, plain]),
        observation=an_observation(a_pending(task, label="19_3"), a_pending(plain, label="8")),
    )
    assert (journal.find_observed_job("7"), journal.find_observed_job("19_3")) == (None, None)
    running = [a_running(task, ((0, 2), (2, 1)), start_s=60), a_running(plain, ((1, 1),), start_s=61)]
    write(journal, 2, a_scene(running=running), started=[(task, 60), (plain, 61)], observation=an_observation())
    assert journal.find_observed_job("19_3") == JournalJobRecord(7, 2, "19_3", "ada", 5, 60, None, "n0*2,n2")
    assert journal.find_observed_job("8") == JournalJobRecord(8, 2, "", "bob", 0, 61, None, "n1")
    write(journal, 3, a_scene(), ended=[EndedJob(task, 60, 90)], observation=an_observation())
    assert journal.find_observed_job("7") == JournalJobRecord(7, 3, "19_3", "ada", 5, 60, 90, "n0*2,n2")
    assert journal.find_observed_job("8").end_s is None
    write(journal, 4, a_scene(), ended=[EndedJob(a_job(9), 95, 96)])
    assert journal.find_observed_job("9") == JournalJobRecord(9, 4, "", "", 0, 95, 96, ""), "never seen running"
    assert (journal.get_job_name(7), journal.get_job_name(8)) == ("19_3", "8")


def test_escapes_invalid_text_when_writing(journal):
    job = a_job(7, user="u\udcff")
    write(journal, 1, a_scene(queue=[job]), observation=an_observation(a_pending(job, label="l\udcff")))
    write(journal, 2, a_scene(running=[a_running(job, ((0, 1),))]), started=[(job, 1)])
    journal.write_events(0.0, 2, [CycleEvent("odd", "d\udcff", 7)])
    journal.write_unscheduled_jobs([UnscheduledJob(1, "held", "r\udcff", "l\udcff", "u\udcff")])
    past = journal.find_observed_job("7")
    assert (past.user, past.label) == ("u\\udcff", "l\\udcff")
    assert [event.detail for event in journal.list_events()] == ["d\\udcff"]
    assert journal.list_unscheduled_jobs() == [UnscheduledJob(1, "held", "r\\udcff", "l\\udcff", "u\\udcff")]


def test_unscheduled_list_is_complete_after_disk_error(journal, tmp_path):
    first, second, third = (UnscheduledJob(id, "held", "by its owner") for id in (1, 2, 3))
    journal.write_unscheduled_jobs([first, second])
    with full_disk(journal):
        with pytest.raises(sqlite3.OperationalError):
            journal.write_unscheduled_jobs([second, third])
        with pytest.raises(sqlite3.OperationalError):
            journal.write_events(0.0, 1, [CycleEvent("odd", "")])
        journal.write_events(0.0, 1, [])
    journal.write_unscheduled_jobs([first])
    assert journal.list_unscheduled_jobs() == [first]
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as other:
        before = other.execute("pragma data_version").fetchone()
        journal.write_unscheduled_jobs([first])
        assert other.execute("pragma data_version").fetchone() == before, "an unchanged list is not written"
    journal.write_unscheduled_jobs([third])
    assert journal.list_unscheduled_jobs() == [third]
    again = Journal(tmp_path / "journal.sqlite")
    again.write_unscheduled_jobs([second])
    assert again.list_unscheduled_jobs() == [second], "what an earlier bridge wrote goes"


def test_segment_ends_at_one_sixteenth_of_bound(tmp_path):
    """So that a journal of large rounds is made of segments that can go one by one."""
    journal = Journal(tmp_path / "journal.sqlite", max_mib=1 / 16)
    for number in range(1, 13):
        queue = [a_job(1000 * number + i, user=f"user{number * i}") for i in range(40)]
        write(journal, number, a_scene(now_s=number, queue=queue))
    firsts = [row[0] for row in rows(tmp_path / "journal.sqlite", "select first from segments order by first")]
    sizes = dict.fromkeys(firsts, 0)
    last = {}
    query = """select rounds.segment, length(rounds.data) + length(e.data)
               from rounds join explanations e using (round) order by round"""
    for segment, size in rows(tmp_path / "journal.sqlite", query):
        last[segment] = sizes[segment]
        sizes[segment] += size
    bound = 2**16 // 16
    assert len(firsts) > 2
    assert all(size >= bound for segment, size in sizes.items() if segment != firsts[-1])
    assert all(before < bound for before in last.values())


def test_prunes_old_rounds_periodically(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "MAX_SEGMENT_ROUNDS", 1)
    monkeypatch.setattr(journals, "PRUNE_INTERVAL_ROUNDS", 4)
    journal = Journal(tmp_path / "journal.sqlite", keep_days=0.5)
    kept = []
    for number in range(1, 10):
        write(journal, number, a_scene(now_s=number))
        change(tmp_path / "journal.sqlite", "update rounds set at_unix_s = 1e9 - 43200 - 1 where round < 4")
        kept.append(len(list(journal.iterate_round_numbers())))
    assert kept == [1, 2, 3, 1, 2, 3, 4, 5, 6]


def test_keeps_newest_segment_and_its_cluster_for_any_bound(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite", max_mib=0.001)
    for number in range(1, 6):
        write(journal, number, a_scene(queue=[a_job(number)], cluster=a_cluster(nodes=number)))
    assert [journal.prune(0.0) for _ in range(2)] == [4, 0]
    assert list(journal.iterate_round_numbers()) == [5]
    assert rows(tmp_path / "journal.sqlite", "select count(*) from clusters") == [(1,)]
    record = journal.read_round(5)
    assert (record.queue, record.cluster.size) == ((a_job(5),), 5)


def test_lists_failed_round_with_failure_name(journal):
    snapshot = POLICY.build().add_estimates(a_scene(queue=[a_job(1)]))
    journal.write_round(a_cycle_report(3, at_unix_s=1e9, snapshot=snapshot, policy_failure="decision_timeout"), POLICY)
    (line,) = journal.list_rounds()
    assert (line.number, line.path, line.queued, line.running, line.starts) == (3, "decision_timeout", 1, 0, 0)
    assert journal.read_round(3).queue == (a_job(1),)


def test_journal_of_exact_bound_keeps_all_rounds(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "MAX_SEGMENT_ROUNDS", 1)
    for number in (1, 2):
        write(journal, number, a_scene(now_s=number))
    size = journal.compute_used_size_bytes()
    journal.close()
    assert Journal(tmp_path / "journal.sqlite", size / 2**20).prune(0.0) == 0
    assert Journal(tmp_path / "journal.sqlite", (size - 1) / 2**20).prune(0.0) == 1


def test_writes_are_not_synchronous(journal):
    """Those of the ledger are: a lost round costs nothing but its explanation."""
    normal = 1
    assert setting(journal, "synchronous") == normal
