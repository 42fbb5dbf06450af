"""A bridge's decision timing: the times of rounds, the lag of starts, and the cases that have them."""

import numpy as np
import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import InvalidValue
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay_calendar import StartLagSequence
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.whatif.whatif_cases import DecisionTiming, WhatIfCase, add_site_priority_settings
from cpsched_sim.whatif.whatif_replay import replay_window
from tests.unit.sim.whatif.accounting import FIRST_S, a_line, a_site, a_window

WHOLE = {"NNodes": 5, "NCPUS": 20, "NodeList": "a[1-3],b[1-2]"}


class Looks(EasyDispatcher):
    """EASY, which notes when it was asked, how many jobs waited, and how long ended jobs ran."""

    learns = True

    def __init__(self):
        super().__init__()
        self.asked_s, self.ran_s = [], []

    def decide(self, snapshot, need="plan"):
        self.asked_s.append(snapshot.now_s - FIRST_S)
        return super().decide(snapshot, need)

    def learn(self, ended):
        self.ran_s.append(ended.run_s)


def replayed_at(window, pace, dispatcher=None, half_closed=False):
    """(start, end) of each job in order of arrival, since the first midnight, or None."""
    policy = Policy(WalltimePredictor(), dispatcher or EasyDispatcher())
    found = replay_window(window, policy, half_closed, None, pace)
    times = ((each - FIRST_S).tolist() for each in (found.start_s, found.end_s))
    return [(start, end) if start < 10**9 else (None, None) for start, end in zip(*times, strict=True)]


def test_rounds_are_at_multiples_of_interval_after_events(tmp_path):
    lines = [a_line(1, 5, 5, 105, **WHOLE), a_line(2, 61, 105, 205), a_line(3, 180, 205, 300, **WHOLE)]
    window, dispatcher = a_window(tmp_path, lines), Looks()
    assert replayed_at(window, DecisionTiming(60), dispatcher) == [(60, 160), (180, 280), (300, 395)]
    assert dispatcher.asked_s == [60, 180, 300], "at 120 nothing can start"


def test_calendar_event_between_rounds_adds_no_round(tmp_path):
    lines = [
        a_line(1, 0, 0, 1000, **WHOLE),
        a_line(2, 5, None, 431, State="CANCELLED by 7", **WHOLE),
        a_line(3, 6, 1000, 1500, **WHOLE),
        a_line(4, 0, 1103, 1203, Reservation="r"),
    ]
    dispatcher = Looks()
    found = replayed_at(a_window(tmp_path, lines), DecisionTiming(50), dispatcher)
    assert all(at % 50 == 0 for at in dispatcher.asked_s)
    assert found[0] == (0, 1000)
    assert found[-1] == (1000, 1500), "the one that gave up waits no more"


@pytest.mark.parametrize(
    ("lines", "pace", "half_closed", "expected"),
    [
        # a round includes the events of its second
        ([a_line(1, 60, 60, 120, **WHOLE), a_line(2, 70, 120, 130)], DecisionTiming(60), False,
         [(60, 120), (120, 130)]),
        # the job of a reservation starts at the next round without pending jobs
        ([a_line(1, 0, 510, 700, Reservation="r", **WHOLE), a_line(2, 20, 20, 120)], DecisionTiming(60), False,
         [(540, 700), (60, 160)]),
        # a job that is cancelled at the time of a round is not started
        ([a_line(1, 0, 0, 120, **WHOLE), a_line(2, 5, None, 120, State="CANCELLED by 7"), a_line(3, 6, 120, 200)],
         DecisionTiming(60), False, [(0, 120), (None, None), (120, 200)]),
        # a cancelled job is gone even if its start lags
        ([a_line(1, 5, None, 400, State="CANCELLED by 7"), a_line(2, 6, 6, 9)], DecisionTiming(0, 3.0), False,
         [(8, 400), (9, 12)]),
        # jobs that run at the beginning have no lag
        ([a_line(1, 0, 10, 700, Reservation="r", **WHOLE), a_line(2, 20, 700, 800)], DecisionTiming(0, 5.0), False,
         [(10, 700), (705, 805)]),
        # users react to the end of a delayed job
        ([a_line(1, 0, 0, 100, User="bob", **WHOLE), a_line(2, 160, 160, 260, User="bob")], DecisionTiming(0, 9.0),
         True, [(9, 109), (178, 278)]),
    ],
)  # fmt: skip
def test_jobs_start_at_rounds_and_after_lag(tmp_path, lines, pace, half_closed, expected):
    assert replayed_at(a_window(tmp_path, lines), pace, half_closed=half_closed) == expected


def test_limits_learning_and_twin_clocks_advance_at_rounds(tmp_path):
    """All jobs start, and none before its look, under dispatchers that learn, or ask to be called again."""
    window = a_window(tmp_path, a_site(tmp_path, days=1, jobs_a_day=80).read_text().splitlines()[1:])
    for text in ("easy / quantile interval=30", "lookahead effort=20 interval=30"):
        case = WhatIfCase.parse(text)
        for half_closed in (False, True):
            found = replay_window(
                window, ReplaySpec(case.spec).build(window.jobs), half_closed, None, case.bridge_timing
            )
            assert (found.start_s % 30 == 0).all()
            assert (found.start_s >= found.arrival_s).all()


def test_start_is_delayed_by_lag_and_holds_nodes(tmp_path):
    lines = [a_line(1, 0, 0, 100, **WHOLE), a_line(2, 1, 100, 200), a_line(3, 500, 500, 510)]
    window, dispatcher = a_window(tmp_path, lines), Looks()
    assert replayed_at(window, DecisionTiming(0, 7.0), dispatcher) == [(7, 107), (114, 214), (507, 517)]
    assert dispatcher.asked_s == [0, 107, 500]
    assert dispatcher.ran_s == [100, 100], "as they ran: no decision follows the last"


def test_lags_are_whole_seconds_with_given_mean():
    lags = StartLagSequence(0.7)
    drawn = [lags.next_delay_s() for _ in range(1000)]
    assert set(drawn) == {0, 1}
    assert sum(drawn) == pytest.approx(700, abs=3)
    assert {StartLagSequence(2.0).next_delay_s(), StartLagSequence(0.0).next_delay_s()} == {2, 0}
    again = StartLagSequence(0.7)
    assert [again.next_delay_s() for _ in range(1000)] == drawn


@pytest.mark.parametrize("text", ["easy", "lookahead effort=20"])
def test_interval_of_1_second_without_lag_changes_nothing(tmp_path, text):
    window = a_window(tmp_path, a_site(tmp_path, days=1, jobs_a_day=80).read_text().splitlines()[1:])
    always, paced = (
        replay_window(window, ReplaySpec(WhatIfCase.parse(text).spec).build(window.jobs), False, None, pace)
        for pace in (DecisionTiming(), DecisionTiming(1))
    )
    assert np.array_equal(always.start_s, paced.start_s)
    assert always.rounds == paced.rounds


# ------------------------------------------------------------------------------------------ cases


def test_control_has_bridge_pace_and_lookahead_none():
    control, plain = WhatIfCase.parse("control objective=waits"), WhatIfCase.parse("lookahead objective=waits")
    assert (control.spec, control.bridge_timing) == (plain.spec, DecisionTiming(1, 0.7))
    assert plain.bridge_timing == DecisionTiming()
    assert WhatIfCase.parse("control interval=10 lag=2").bridge_timing == DecisionTiming(10, 2.0)
    assert WhatIfCase.parse("easy interval=5").bridge_timing == DecisionTiming(5, 0.0)


def test_bridge_modes_use_bridge_defaults():
    assert WhatIfCase.parse("advise").spec.dispatcher_settings == {"every_s": "30"}
    assert WhatIfCase.parse("advise every_s=60").spec.dispatcher_settings == {"every_s": "60"}
    assert WhatIfCase.parse("advised").spec.dispatcher_settings == {}
    told = {text: add_site_priority_settings(WhatIfCase.parse(text)).spec.dispatcher_settings
            for text in ("control", "control site_weight=0", "advise", "lookahead", "easy")}  # fmt: skip
    assert told == {
        "control": {"site_weight": "1"}, "control site_weight=0": {"site_weight": "0"},
        "advise": {"every_s": "30", "site_weight": "1"}, "lookahead": {}, "easy": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("control interval=1.5", "interval=1.5: must be a whole number of seconds from 0 to 3600"),
        ("control lag=-1", "lag=-1: must be a number of seconds from 0 to 3600"),
        ("control lag=nan", "lag=nan"),
        ("easy interval=3601", "interval=3601"),
        ("advise interval=5", "interval=5: applies to a bridge that starts jobs"),
        ("slurm lag=1", "lag=1: applies to a bridge that starts jobs"),
        ("lag=1", "lag=1: applies to a bridge that starts jobs"),
    ],
)
def test_rejects_invalid_pace_before_reading(text, says):
    with pytest.raises(InvalidValue, match=says):
        WhatIfCase.parse(text)


def test_report_states_pace_and_assumptions():
    told = {
        text: WhatIfCase.parse(text).bridge_timing_description
        for text in ("easy", "easy lag=2", "control", "control lag=2")
    }
    assert told == {
        "easy": "a round at every event",
        "easy lag=2": "a round at every event, starts 2 s later",
        "control": "a round every 1 s, starts 0.7 s later "
        "(assumed; interval: the bridge's default, lag: measured on a live bridge)",
        "control lag=2": "a round every 1 s, starts 2 s later (assumed; interval: the bridge's default)",
    }
