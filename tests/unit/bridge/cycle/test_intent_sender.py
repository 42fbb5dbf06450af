"""The records written before and after each command, by its outcome."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from cpsched_bridge.cycle.backoff import MAX_REPETITIONS
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.intent_sender import (
    CycleCommandBudget,
    IntentSelection,
    LedgerCommandSender,
    make_start_orders,
)
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import Hold, Outcome, StartOrder, StartSettings, UndoOrder
from cpsched_bridge.store.ledger import Ledger, LedgerState, make_transition
from tests.builders import a_job
from tests.fakes import FakeCluster, FakePace

MANY = 100


class Setting:
    """A ledger with jobs in some states beside a cluster, and commands between them."""

    def __init__(self, path, **states):
        self.cluster = FakeCluster(lazy=True)
        self.ledger = Ledger(path / "state.sqlite", durable=False)
        for number, state in states.items():
            id = int(number[1:])
            self.cluster.submit(a_job(id), hold=Hold.NONE if state is LedgerState.HOLDING else Hold.ADMIN)
            first = (
                LedgerState.HELD
                if state in (LedgerState.HELD, LedgerState.STARTING, LedgerState.ROLLING_BACK)
                else state
            )
            self.ledger.record([make_transition(None, first, 1, "", job_id=id)])
            if state is LedgerState.ROLLING_BACK:
                self.ledger.record([make_transition(self.ledger.get(id), LedgerState.STARTING, 1, "", pinned=True)])
            if first is not state:
                self.ledger.record([make_transition(self.ledger.get(id), state, 1, "", pinned=True)])
        self.commands = LedgerCommandSender(self.cluster, self.ledger, 3, lambda: self.age_s)
        self.age_s = 0
        self.recorder = CycleRecorder(9, FakePace())

    def answer(self, call, *results, words="words", code=""):
        outcomes = [Outcome(id, result, words, code) for id, result in zip(self.cluster.jobs, results, strict=True)]
        self.cluster.collect_output(call, outcomes)

    def send(self, allowed=MANY, selection=IntentSelection.ALL, delayed=()):
        seen = replace(self.cluster.read(), now_s=1005)
        pending = tuple(replace(each, awaits_hold=each.job.id in delayed) for each in seen.pending)
        seen = replace(seen, pending=pending)
        self.commands.send_intents(seen, CycleCommandBudget(allowed), self.recorder, selection)

    def start(self):
        orders = [StartOrder(fake.job, (("n0", 1),)) for fake in self.cluster.jobs.values()]
        return self.commands.start(orders, replace(self.cluster.read(), now_s=1005), self.recorder)

    def entry(self, id=1):
        return self.ledger.get(id)


def test_records_start_with_final_layout(tmp_path):
    setting = Setting(tmp_path, j1=LedgerState.HELD, j2=LedgerState.HELD)
    setting.cluster.resolve_layout = lambda orders, under_way: [
        replace(orders[0], nodes=(("n2", 1),)),
        Outcome.not_sent(2, "in a moment"),
    ]
    setting.start()
    assert setting.cluster.commands == [("start", (1,))]
    assert (setting.entry(1).state, setting.entry(1).nodes) == (LedgerState.STARTING, (("n2", 1),))
    assert (setting.entry(2).state, setting.entry(2).failures) == (LedgerState.HELD, 0)
    assert [(h.kind, h.detail, h.job_id) for h in setting.recorder.bridge_events] == [
        ("start_postponed", "in a moment", 2)
    ]


def test_ledger_keeps_what_undoes_a_start(tmp_path):
    setting, undone = Setting(tmp_path, j1=LedgerState.HELD), []
    setting.cluster.stalls = 1
    order = StartOrder(setting.cluster.jobs[1].job, (("n0", 1),), StartSettings(nice=-3, restore="Nice=5"))
    setting.commands.start([order], setting.cluster.read(), setting.recorder)
    setting.ledger.record([make_transition(setting.entry(), LedgerState.ROLLING_BACK, 1, "")])
    setting.ledger.reload()
    setting.cluster.hold = lambda orders: undone.extend(orders) or [Outcome(1, "done")]
    setting.recorder.outcomes.clear()
    setting.send()
    assert undone == [UndoOrder(1, pinned=True, restore="Nice=5")]


def test_clears_pin_that_only_the_cluster_shows(tmp_path):
    setting, undone = Setting(tmp_path, j1=LedgerState.RELEASING), []
    setting.cluster.jobs[1].pin = (("n0", 1),)
    setting.cluster.release = lambda orders: undone.extend(orders) or [Outcome(1, "done")]
    setting.send()
    assert undone == [UndoOrder(1, pinned=True)]


def test_layout_depends_on_starts_under_way(tmp_path):
    """Also on those of an earlier bridge process, and on those that may still take effect although they failed.

    Jobs 4 and 5, of which the ledger has only the former, are not held but have not been started.
    """
    states = LedgerState.STARTING, LedgerState.ROLLING_BACK, LedgerState.HELD, LedgerState.HOLDING
    setting = Setting(tmp_path, **{f"j{id}": state for id, state in enumerate(states, start=1)})
    setting.cluster.submit(a_job(5), hold=Hold.NONE)
    under_way = []
    setting.cluster.resolve_layout = lambda orders, sent: under_way.extend(sent) or [Outcome.not_sent(3, "later")]
    for id in (1, 2):
        setting.cluster.jobs[id].hold = Hold.NONE
        setting.ledger.record([make_transition(setting.entry(id), setting.entry(id).state, 1, "", nodes=(("n1", 1),))])
    setting.start()
    assert under_way == [StartOrder(setting.cluster.jobs[id].job, (("n1", 1),)) for id in (1, 2)]


@pytest.mark.parametrize("intent", [LedgerState.HOLDING, LedgerState.ROLLING_BACK])
@pytest.mark.parametrize(
    ("result", "code", "becomes", "failures"),
    [
        ("done", "", LedgerState.HELD, 0),
        ("refused", "", None, 1),
        ("refused", "not_sent", None, 0),
        ("unknown", "", None, 0),
    ],
)
def test_records_hold_outcome(tmp_path, intent, result, code, becomes, failures):
    setting = Setting(tmp_path, j1=intent)
    setting.answer("hold", result, code=code)
    setting.send()
    entry = setting.entry()
    assert (entry.state, entry.failures) == (becomes or intent, failures)
    assert entry.pinned == (intent is LedgerState.ROLLING_BACK and result != "done"), (
        "a pin is gone with a hold that is done"
    )
    assert setting.recorder.outcomes == [("hold", Outcome(1, result, "words", code))]
    if failures:
        assert entry.why == "hold refused: words"


def test_refused_holds_never_undo_admin_hold(tmp_path):
    setting = Setting(tmp_path, j1=LedgerState.HOLDING)
    for _ in range(setting.commands.max_failures + 1):
        setting.answer("hold", "refused", words="an administrator holds it", code="held_by_administrator")
        setting.send()
    assert (setting.entry().state, setting.entry().failures) == (LedgerState.HOLDING, 0)
    assert setting.entry().cause == "held_by_administrator"


@pytest.mark.parametrize(
    ("result", "becomes"),
    [("done", LedgerState.FREE), ("refused", LedgerState.RELEASING), ("unknown", LedgerState.RELEASING)],
)
def test_records_release_outcome(tmp_path, result, becomes):
    setting = Setting(tmp_path, j1=LedgerState.RELEASING)
    setting.ledger.record([make_transition(setting.entry(), LedgerState.RELEASING, 1, "", pinned=True)])
    setting.answer("release", result)
    setting.send()
    assert (setting.entry().state, setting.entry().pinned) == (becomes, result != "done")
    assert setting.recorder.outcomes == [("release", Outcome(1, result, "words"))]


@pytest.mark.parametrize(
    ("result", "code", "becomes", "pinned", "failures"),
    [
        ("done", "", LedgerState.STARTING, True, 0),
        ("unknown", "", LedgerState.STARTING, True, 0),
        ("refused", "", LedgerState.HELD, False, 1),
        ("refused", "not_sent", LedgerState.HELD, False, 0),
    ],
)
def test_records_start_outcome(tmp_path, result, code, becomes, pinned, failures):
    setting = Setting(tmp_path, j1=LedgerState.HELD)
    setting.answer("start", result, code=code)
    failed = setting.start()
    entry = setting.entry()
    assert (entry.state, entry.pinned, entry.failures) == (becomes, pinned, failures)
    assert [(each.entry, each.entry.cause) for each in failed] == ([(entry, "refused")] if failures else [])
    assert entry.nodes == (("n0", 1),)
    told = [(h.kind, h.job_id) for h in setting.recorder.bridge_events]
    kind = "start_postponed" if code else "start_refused"
    assert told == ([(kind, 1)] if result == "refused" else [])
    assert entry.why == ("start rejected: words" if result == "refused" else "decided")
    numbers = [number for _, number, *_ in setting.ledger.read_transitions(1)]
    assert numbers == ([0, 9, 9] if result == "refused" else [0, 9]), "under the number of the round"


@pytest.mark.parametrize(("one_change", "cause"), [(True, ""), (False, "released")])
def test_records_separate_release_of_start(tmp_path, one_change, cause):
    setting = Setting(tmp_path, j1=LedgerState.HELD)
    setting.cluster.starts_in_one_change = one_change
    setting.start()
    assert (setting.entry().state, setting.entry().cause) == (LedgerState.STARTING, cause)


@pytest.mark.parametrize(
    ("error", "becomes", "pinned", "result"),
    [
        (BackendUnavailable("gone"), LedgerState.HELD, False, "refused"),
        (CommandRefused("no"), LedgerState.HELD, False, "refused"),
        (BackendTimeout("late"), LedgerState.STARTING, True, "unknown"),
    ],
)
def test_records_start_batch_failure(tmp_path, error, becomes, pinned, result):
    setting = Setting(tmp_path, j1=LedgerState.HELD, j2=LedgerState.HELD)
    setting.cluster.fail("start", error)
    with pytest.raises(type(error)):
        setting.start()
    for id in (1, 2):
        entry = setting.entry(id)
        assert (entry.state, entry.pinned, entry.failures) == (becomes, pinned, 0)
    assert setting.recorder.outcomes == [("start", Outcome(id, result, str(error))) for id in (1, 2)]


@pytest.mark.parametrize(
    ("states", "sends", "commands"),
    [
        ((LedgerState.RELEASING, LedgerState.HOLDING, LedgerState.HOLDING), [{"allowed": 2}] * 2,
         [[("hold", (2, 3))], [("release", (1,))]]),
        # Slurm starts no delayed job soon, and one user's many new jobs would delay the starts of others.
        ((LedgerState.HOLDING, LedgerState.HOLDING),
         [{"selection": IntentSelection.BEFORE_STARTS, "delayed": {2}}, {"delayed": {2}}],
         [[("hold", (1,))], [("hold", (2,))]]),
        ((LedgerState.HOLDING, LedgerState.HOLDING, LedgerState.ROLLING_BACK), [{"allowed": 1}], [[("hold", (3,))]]),
    ],
    ids=["holds first", "delayed jobs after starts", "what frees nodes before holds"],
)  # fmt: skip
def test_sends_intents_in_order_within_budget(tmp_path, states, sends, commands):
    setting = Setting(tmp_path, **{f"j{id}": state for id, state in enumerate(states, start=1)})
    for options, expected in zip(sends, commands, strict=True):
        setting.cluster.commands.clear()
        setting.send(**options)
        assert setting.cluster.commands == expected


def test_releases_jobs_left_since_the_observation_after_starts(tmp_path):
    """They might take the nodes of the starts."""
    setting = Setting(tmp_path, j1=LedgerState.RELEASING, j2=LedgerState.RELEASING)
    setting.ledger.record([make_transition(setting.entry(2), LedgerState.RELEASING, 1005, "")])
    setting.send(selection=IntentSelection.BEFORE_STARTS)
    assert setting.cluster.commands == [("release", (1,))]
    setting.send()
    assert setting.cluster.commands[1:] == [("release", (2,))]


def test_removes_pins_before_other_commands_and_sends_none_twice(tmp_path):
    """Job 4 is held by an administrator, whose hold stays."""
    states = LedgerState.HOLDING, LedgerState.ROLLING_BACK, LedgerState.RELEASING, LedgerState.RELEASING
    setting = Setting(tmp_path, **{f"j{id}": state for id, state in enumerate(states, start=1)})
    for id, state in ((3, LedgerState.RELEASING), (4, LedgerState.FREE)):
        setting.ledger.record([make_transition(setting.entry(id), state, 1, "why", pinned=True)])
    setting.cluster.collect_output("hold", [Outcome(2, "unknown")])
    setting.send(selection=IntentSelection.PINNED_JOBS)
    assert setting.cluster.commands == [("hold", (2,)), ("release", (3,)), ("unpin", (4,))]
    entry = setting.entry(4)
    assert (entry.state, entry.pinned, entry.why, entry.since_s) == (LedgerState.FREE, False, "why", 1005)
    assert setting.cluster.jobs[4].hold is Hold.ADMIN
    setting.send()
    assert setting.cluster.commands[3:] == [("hold", (1,))]


@pytest.mark.parametrize("result", ["refused", "unknown"])
def test_pin_that_is_not_removed_stays_recorded(tmp_path, result):
    setting = Setting(tmp_path, j1=LedgerState.RELEASING)
    before = make_transition(setting.entry(), LedgerState.FREE, 1, "", pinned=True)
    setting.ledger.record([before])
    setting.answer("unpin", result)
    setting.send()
    assert setting.entry() == before.entry


def test_start_orders_name_nodes_and_keep_settings():
    cluster = FakeCluster.of(a_job(1, units=4), a_job(2), a_job(3))
    seen, settings = cluster.read(), StartSettings(nice=-3, restore="Nice=5")
    pending = [replace(each, start_settings=settings) if each.job.id != 2 else each for each in seen.pending]
    starts = [(cluster.jobs[1].job, ((0, 3), (2, 1))), (cluster.jobs[2].job, ((1, 1),)), (a_job(9), ((3, 1),))]
    assert make_start_orders(starts, replace(seen, pending=tuple(pending))) == [
        StartOrder(starts[0][0], (("n0", 3), ("n2", 1)), settings),
        StartOrder(starts[1][0], (("n1", 1),)),
        StartOrder(starts[2][0], (("n3", 1),)),
    ]


def test_budget_serves_holds_of_users_in_turn(tmp_path):
    setting = Setting(tmp_path, **{f"j{id}": LedgerState.HOLDING for id in range(1, 9)})
    for id, fake in setting.cluster.jobs.items():
        fake.job = replace(fake.job, user="bob" if id == 8 else "mallory")
    setting.send(allowed=2)
    assert setting.cluster.commands == [("hold", (1, 8))]


def test_sends_nothing_for_missing_jobs_or_empty_batch(tmp_path):
    setting = Setting(tmp_path, j1=LedgerState.HOLDING, j2=LedgerState.RELEASING)
    for id in (1, 2):
        setting.cluster.cancel(id)
    setting.send()
    setting.commands.start([], setting.cluster.read(), setting.recorder)
    assert setting.cluster.commands == []


def test_outcome_for_unknown_job_is_backend_error(tmp_path):
    setting = Setting(tmp_path, j1=LedgerState.HOLDING)
    setting.cluster.collect_output("hold", [Outcome(77, "done")])
    with pytest.raises(KeyError, match="job 77 is not in the ledger"):
        setting.send()


def test_backed_off_command_uses_no_budget(tmp_path):
    setting = Setting(tmp_path, j1=LedgerState.HOLDING, j2=LedgerState.HOLDING)
    setting.commands.retries.record_sent("hold", [1] * 9, 1005)
    setting.send(allowed=1)
    assert setting.cluster.commands == [("hold", (2,))]


def test_reports_repeated_command_without_effect_once(tmp_path):
    """A command that was not sent is sent again in the next cycle, however often that happens."""
    setting, told = Setting(tmp_path, j1=LedgerState.HOLDING, j2=LedgerState.HOLDING), []
    for _ in range(MAX_REPETITIONS + 1):
        setting.recorder = CycleRecorder(9, FakePace())
        setting.cluster.collect_output("hold", [Outcome(1, "unknown"), Outcome.not_sent(2, "no more calls")])
        setting.send()
        told += [(each.kind, each.detail, each.job_id) for each in setting.recorder.bridge_events]
    assert told == [("no_effect", "hold was sent 5 times without effect and is now retried less often: ", 1)]
    assert [setting.commands.retries.is_due("hold", id, 1005) for id in (1, 2)] == [False, True]


def test_budget_serves_in_order():
    allowance = CycleCommandBudget(3)
    assert [allowance.take(jobs) for jobs in ([1, 2], [3, 4], [5])] == [[1, 2], [3], []]


def test_budget_serves_users_in_turn():
    allowance = CycleCommandBudget(5)
    assert allowance.take(["a1", "a2", "a3", "a4", "b1", "a5", "c1", "b2"], lambda each: each[0]) == [
        "a1", "a2", "b1", "c1", "b2",
    ]  # fmt: skip
    assert allowance.left == 0


def test_sufficient_budget_keeps_order():
    assert CycleCommandBudget(4).take(["a1", "a2", "a3", "b1"], lambda each: each[0]) == ["a1", "a2", "a3", "b1"]


@pytest.mark.parametrize("in_one_change", [True, False])
@pytest.mark.parametrize(
    ("prepare", "ends", "state", "since_s", "cause"),
    [
        (lambda setting: None, nullcontext(), LedgerState.STARTING, 1033, "released"),
        (lambda setting: setting.cluster.fail("start", BackendTimeout("no answer")), pytest.raises(BackendTimeout),
         LedgerState.STARTING, 1033, ""),
        (lambda setting: setting.answer("start", "refused"), nullcontext(), LedgerState.HELD, 1005, "refused"),
    ],
    ids=["done", "no answer", "refused"],
)  # fmt: skip
def test_start_timeout_counts_from_the_answer(tmp_path, in_one_change, prepare, ends, state, since_s, cause):
    """A decision and a burst of starts took 28 s, longer than `start.timeout_s`."""
    setting = Setting(tmp_path, j1=LedgerState.HELD)
    setting.cluster.starts_in_one_change, setting.age_s = in_one_change, 28
    prepare(setting)
    with ends:
        setting.start()
    entry = setting.entry()
    assert (entry.state, entry.since_s, entry.cause) == (state, since_s, cause)
    assert [at_s for at_s, *_ in setting.ledger.read_transitions(1)] == [1, 1005, since_s]
