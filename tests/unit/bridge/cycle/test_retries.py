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
