"""What a finding leads to: when a setting is changed, kept, taken back, refused; and what a restart finds again."""

import json
from dataclasses import replace

import pytest

from cpsched.policy_spec import PolicySpec
from cpsched_bridge.store.tuning import (
    DAY_S,
    JUDGED_AFTER_S,
    REFUSED_S,
    Finding,
    TuningFile,
    TuningState,
    failed,
    next_step,
)

SAID = PolicySpec("lookahead")
BETTER = PolicySpec("lookahead", dispatcher_settings={"objective": "slowdown"})
NOW_S = 1_000_000_000


def finding(at_s=NOW_S, **facts):
    clear = {"verdict": "better", "sentence": "Change objective=slowdown.", "chosen": BETTER,
             "changes": "objective=slowdown", "ratio": 0.8, "low": 0.7, "high": 0.9, "worst_window": 0.95}  # fmt: skip
    return Finding(at_s, **{**clear, **facts})


def test_advise_tells_once_and_changes_nothing():
    first = next_step(TuningState(), finding(), "advise")
    assert (first.kind, first.changed, first.state.tuned) == ("tuning_advises", False, None)
    assert first.state.expects == 0.8
    assert "Change objective=slowdown." in first.state.status
    assert next_step(first.state, finding(NOW_S + DAY_S), "advise").kind is None


def test_a_clear_gain_is_taken_and_told_with_what_is_expected():
    step = next_step(TuningState(), finding(), "on")
    assert (step.kind, step.changed, step.state.tuned) == ("tuned", True, BETTER)
    assert step.detail == "objective=slowdown: -20 % is expected"
    assert [(entry.kind, entry.expected) for entry in step.state.history] == [("tuned", 0.8)]
    assert "changed objective=slowdown (expected -20 %, not judged yet)" in step.state.status


@pytest.mark.parametrize(
    "doubt",
    [
        {"verdict": "unclear"},
        {"verdict": "keep", "chosen": None},
        {"ratio": 0.98},
        {"high": 1.0},
        {"worst_window": 1.01},
    ],
    ids=str,
)
def test_a_gain_that_is_not_clear_in_all_of_the_weeks_changes_nothing(doubt):
    step = next_step(TuningState(), finding(**doubt), "on")
    assert (step.kind, step.changed, step.state.tuned) == (None, False, None)


def tuned(since_s=NOW_S):
    return next_step(TuningState(), finding(since_s), "on").state


def test_no_other_change_follows_before_the_first_is_judged():
    other = replace(BETTER, predictor="last-two")
    early = next_step(tuned(), finding(NOW_S + JUDGED_AFTER_S - 1, chosen=other), "on")
    assert (early.changed, early.state.tuned) == (False, BETTER)
    late = next_step(tuned(), finding(NOW_S + JUDGED_AFTER_S, chosen=other, came=0.9), "on")
    assert (late.changed, late.state.tuned) == (True, other)
    assert "the change before (objective=slowdown) came" not in late.detail or "-10 %" in late.detail


def test_what_turned_out_worse_is_taken_back_and_refused_for_a_while():
    back = next_step(tuned(), finding(NOW_S + JUDGED_AFTER_S, verdict="keep", chosen=None, came=1.05), "on")
    assert (back.kind, back.changed, back.state.tuned) == ("tuned_back", True, None)
    assert back.detail == "taken back, objective=slowdown: expected -20 %, came +5 %"
    assert [(e.kind, e.expected, e.came) for e in back.state.history][-1] == ("tuned_back", 0.8, 1.05)
    at_s = NOW_S + JUDGED_AFTER_S
    assert not next_step(back.state, finding(at_s + 2 * DAY_S), "on").changed
    assert next_step(back.state, finding(at_s + REFUSED_S + 1), "on").changed


@pytest.mark.parametrize("came", [None, 0.9, 1.0, 1.02])
def test_what_is_not_clearly_worse_stays(came):
    kept = next_step(tuned(), finding(NOW_S + JUDGED_AFTER_S, verdict="keep", chosen=None, came=came), "on")
    assert (kept.changed, kept.state.tuned, kept.state.came) == (False, BETTER, came)


def test_after_a_change_was_taken_back_a_day_passes_before_the_next():
    back = next_step(tuned(), finding(NOW_S + JUDGED_AFTER_S, verdict="keep", chosen=None, came=1.5), "on").state
    other = replace(BETTER, predictor="last-two")
    assert not next_step(back, finding(NOW_S + JUDGED_AFTER_S + DAY_S - 1, chosen=other), "on").changed
    assert next_step(back, finding(NOW_S + JUDGED_AFTER_S + DAY_S, chosen=other), "on").changed


def test_a_failure_is_told_once_and_what_was_tuned_stays():
    first = failed(tuned(), NOW_S + 5, "it hangs")
    assert (first.kind, first.changed, first.state.tuned, first.state.asked_s) == (
        "tuning_failed",
        False,
        BETTER,
        NOW_S + 5,
    )
    assert failed(first.state, NOW_S + 9, "it hangs").kind is None
    assert next_step(first.state, finding(verdict="keep", chosen=None), "on").state.failure == ""


def test_a_restart_finds_everything_again_and_other_settings_nothing(tmp_path):
    file, state = TuningFile(tmp_path / "tuning.json"), replace(tuned(), said=str(SAID), refused={"x": NOW_S})
    file.write(state)
    assert (tmp_path / "tuning.json").stat().st_mode & 0o777 == 0o600
    assert file.read(SAID) == file.read() == state
    assert file.read(BETTER) == TuningState(said=str(BETTER))
    assert TuningFile(tmp_path / "none.json").read(SAID) == TuningState(said=str(SAID))


@pytest.mark.parametrize(
    "damage",
    ["", "[]", "{}", "null", "[" * 5000, '{"tuned": 3}', b"\xff\xfe".decode("latin-1")],
    ids=lambda text: text[:9],
)
def test_a_damaged_file_is_forgotten(tmp_path, damage):
    (tmp_path / "tuning.json").write_text(damage)
    assert TuningFile(tmp_path / "tuning.json").read(SAID) == TuningState(said=str(SAID))


@pytest.mark.parametrize(
    ("name", "value"),
    [("tuned", {"dispatcher": 3, "other": 4}), ("history", 7), ("refused", [1]), ("expected", "much"),
     ("since_s", None), ("came", float("nan")), ("more", 1)],
)  # fmt: skip
def test_a_file_with_one_wrong_value_is_forgotten(tmp_path, name, value):
    file = TuningFile(tmp_path / "tuning.json")
    file.write(replace(tuned(), said=str(SAID)))
    content = json.loads(file.path.read_text())
    file.path.write_text(json.dumps({**content, name: value}))
    assert file.read(SAID) == TuningState(said=str(SAID))
