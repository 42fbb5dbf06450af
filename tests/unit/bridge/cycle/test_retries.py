"""Commands that are repeated in vain: told once, and sent ever more rarely."""

from __future__ import annotations

import itertools

from cpsched_bridge.cycle.retries import IN_VAIN, LONGEST_REST_S, REMEMBERED_S, Retries


def test_a_command_in_vain_is_told_once_and_sent_ever_more_rarely() -> None:
    retries = Retries()
    sent, told = [], []
    for now_s in range(400):
        retries.intend([7], now_s)
        if retries.due("hold", 7, now_s):
            sent.append(now_s)
            told += [now_s for _ in retries.note("hold", [7], now_s)]
    gaps = [b - a for a, b in itertools.pairwise(sent)]
    assert gaps[: IN_VAIN + 5] == [1] * IN_VAIN + [2, 4, 8, 16, 32]
    assert set(gaps[IN_VAIN + 5 :]) == {LONGEST_REST_S}
    assert told == [IN_VAIN - 1]


def test_another_command_begins_anew_and_is_due_at_once() -> None:
    retries = Retries()
    for now_s in range(8):
        retries.note("hold", [7], now_s)
    assert not retries.due("hold", 7, 8)
    assert retries.due("start", 7, 8)
    retries.note("start", [7], 8)
    assert retries.due("hold", 7, 9)
    assert retries.note("hold", [7], 9) == []


def test_other_jobs_are_not_concerned() -> None:
    retries = Retries()
    for now_s in range(8):
        retries.note("hold", [7], now_s)
    assert retries.due("hold", 8, 8)


def test_what_took_effect_is_forgotten_after_a_while() -> None:
    retries = Retries()
    for now_s in range(IN_VAIN):
        retries.note("hand_back", [7], now_s)
    retries.intend([7], IN_VAIN)
    retries.intend([], IN_VAIN)
    assert retries.note("hand_back", [7], IN_VAIN) == [], "it did not last: counted on, not told again"
    retries.intend([], IN_VAIN + REMEMBERED_S + 10)
    for now_s in range(IN_VAIN - 1):
        assert retries.note("hand_back", [7], 100 + now_s) == []
    assert retries.note("hand_back", [7], 200) == [7]


def test_what_was_never_sent_is_due_and_what_was_sent_a_few_times_too() -> None:
    retries = Retries()
    assert retries.due("hold", 7, 0)
    for now_s in range(IN_VAIN - 1):
        assert retries.note("hold", [7], now_s) == []
        assert retries.due("hold", 7, now_s)
    assert retries.note("hold", [7], 10) == [7], "the fifth"
    assert [retries.due("hold", 7, now_s) for now_s in (10, 11)] == [False, True]
    assert retries.note("hold", [7], 11) == [], "told once"
    assert [retries.due("hold", 7, now_s) for now_s in (12, 13)] == [False, True]


def test_each_job_is_told_with_the_batch_in_which_it_has_been_in_vain() -> None:
    retries = Retries()
    for now_s in range(2):
        retries.note("hold", [7], now_s)
    for now_s in range(2, 4):
        assert retries.note("hold", [7, 8], now_s) == []
    assert retries.note("hold", [7, 8], 4) == [7]
    assert retries.note("hold", [7, 8], 5) == []
    assert retries.note("hold", [7, 8], 7) == [8]
    assert retries.note("hold", [8], 9) == []


def test_a_command_is_remembered_for_half_a_minute_after_its_rest_and_as_long_as_it_is_intended() -> None:
    for rest_s in (REMEMBERED_S - 1, REMEMBERED_S):
        retries = Retries()
        for now_s in range(IN_VAIN - 1):
            retries.note("hold", [7, 8], now_s)
        last_s = IN_VAIN - 2
        retries.intend([8], last_s + rest_s)
        assert retries.note("hold", [7, 8], 100) == ([7, 8] if rest_s < REMEMBERED_S else [8])


def test_commands_of_another_kind_do_not_add_up() -> None:
    retries = Retries()
    for now_s in range(IN_VAIN - 1):
        retries.note("hold", [7], now_s)
    for now_s in range(IN_VAIN - 1):
        assert retries.note("start", [7], 10 + now_s) == []
    assert retries.note("start", [7], 20) == [7]
