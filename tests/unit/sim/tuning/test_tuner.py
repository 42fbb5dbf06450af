"""The tuner chooses settings on one half of the windows, and reports their results on the other half."""

import json
import math
import re
import zlib
from dataclasses import replace

import pytest

from cpsched.errors import InvalidValue
from cpsched.goal_presets import Goal
from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import InputError
from cpsched_sim.experiments import case_store
from cpsched_sim.experiments.case_store import CaseStore
from cpsched_sim.tuning import tuner
from cpsched_sim.tuning.setting_candidates import expand_defaults, list_candidate_settings
from cpsched_sim.tuning.tuner import TuningRequest, TuningResult, tune, tuning_result_to_json
from cpsched_sim.tuning.tuning_windows import split_last_weeks
from cpsched_sim.tuning.window_replays import (
    TRIAL_FORMAT,
    SettingTrialRunner,
    WindowMetricSums,
    replay_window_sums,
    trial_key,
)
from tests.fuzz.command_line import invoke
from tests.unit.sim.tuning.weeks import as_swf, weeks

PRESENT = PolicySpec("lookahead")


@pytest.fixture(scope="module")
def cut():
    return split_last_weeks(weeks(days=28, jobs_a_day=30), 4, 3.5, 4000)[0]


class Stand:
    """Stands for replays: `worth(spec, window)` is the mean wait of a window; each trial asked for is written down."""

    def __init__(self, worth, longest_s=lambda window, wait: wait):
        self.worth, self.longest_s, self.asked = worth, longest_s, []

    def __call__(self, trials, told):
        self.asked += trials
        told(float(sum(len(trial.windows) for trial in trials)))
        return [self.outcome(trial) for trial in trials]

    def outcome(self, trial):
        waits = [(window, self.worth(trial.spec, window)) for window in trial.windows]
        if any(wait is None for _, wait in waits):
            return "broke"
        return [
            WindowMetricSums(100, 100 * w, 100 * w, 100 * w, 1, w, w, 1, self.longest_s(window, w))
            for window, w in waits
        ]


def objective(spec):
    """The objective of a candidate that changes nothing else."""
    values = expand_defaults(spec)
    is_plain = values["predictor"] == "walltime" and values.get("overdue_h") == 168.0
    return str(values["objective"]) if is_plain else ""


def noise(window, spec):
    """Something that differs by window and setting, the same each time."""
    return 1 + 0.02 * math.sin(zlib.crc32(f"{window.digest} {spec}".encode()))


def found_with(cut, worth, goal="waits", limits="none", present=PRESENT, **more) -> TuningResult:
    return tune(TuningRequest(Goal.of(goal, limits), present, **more), cut, Stand(worth))


def waits_are_half(spec, window):
    return 500 if objective(spec) == "waits" else 1000


def test_names_better_setting_with_its_gain(cut):
    found = found_with(cut, waits_are_half)
    assert (found.verdict, objective(found.chosen.spec)) == ("better", "waits")
    assert found.gain.ratio == pytest.approx(0.5, abs=0.01)
    assert found.gain.high < 1
    assert found.verdict_sentence.startswith(
        "Change objective=waits: -50 % (-50 to -50) by the goal waits, on 4 windows"
    )


def test_does_not_name_setting_better_by_chance(cut):
    """On the choosing half the setting wins by far, on the other it does not, and only the latter is reported."""
    judging = {window.digest for window in cut.judging}

    def worth(spec, window):
        lucky = objective(spec) == "waits" and window.digest not in judging
        return 500 if lucky else 1000 * noise(window, spec)

    found = found_with(cut, worth)
    assert (found.verdict, objective(found.chosen.spec)) == ("unclear", "waits")
    assert 0.95 < found.gain.ratio < 1.05
    assert found.verdict_sentence.startswith("No setting differs significantly from the current one")


def test_does_not_use_judging_half_before_choice(cut):
    judging = {window.digest for window in cut.judging}
    stand = Stand(lambda spec, window: 1000 * noise(window, spec))
    tune(TuningRequest(Goal.of("waits", "none"), PRESENT), cut, stand)
    judges = [any(window.digest in judging for window in trial.windows) for trial in stand.asked]
    assert judges == sorted(judges)
    specs = [trial.spec for trial, is_judging in zip(stand.asked, judges, strict=True) if is_judging]
    assert (
        len({repr(replace(spec, dispatcher_settings={**spec.dispatcher_settings, "seed": ""})) for spec in specs}) <= 3
    )


@pytest.mark.parametrize(
    ("worth", "limits", "verdict", "sentence"),
    [
        (lambda spec: 900 if objective(spec) == "balance" else 1000, "none", "keep", "Keep the current setting"),
        (lambda spec: 100 if spec.dispatcher == "easy" else 1000, {"mean_wait": 110}, "none",
         "No setting stays within the limits"),
    ],
)  # fmt: skip
def test_names_no_setting_if_none_is_better(cut, worth, limits, verdict, sentence):
    found = found_with(cut, lambda spec, window: worth(spec), limits=limits)
    assert (found.verdict, found.chosen) == (verdict, None)
    assert found.verdict_sentence.startswith(sentence)


def test_does_not_choose_setting_beyond_limits(cut):
    stand = Stand(
        lambda spec, window: {"waits": 100, "large-jobs": 700}.get(objective(spec), 1000),
        lambda window, wait: 2000.0 if wait == 100 else 1000.0,
    )
    found = tune(TuningRequest(Goal.of("waits", {"longest": "150 %"}), PRESENT), cut, stand)
    assert objective(found.chosen.spec) == "large-jobs"
    beyond = next(each for each in found.tried if objective(each.spec) == "waits")
    assert beyond.broken["longest"] == pytest.approx(194.3, abs=0.1)


def test_setting_breaking_limit_on_judging_half_is_not_better(cut):
    judging = {window.digest for window in cut.judging}
    stand = Stand(waits_are_half, lambda window, wait: 9000.0 if window.digest in judging and wait == 500 else 1000.0)
    found = tune(TuningRequest(Goal.of("waits", {"longest": 150}), PRESENT), cut, stand)
    assert found.verdict == "unclear"
    assert found.gain.high < 1
    assert found.verdict_sentence == (
        "No change is recommended: the best setting, objective=waits, exceeds a limit on 4 windows not used for the "
        "choice (longest 855 %)."
    )


def test_reports_failed_setting_and_does_not_choose_it(cut):
    found = found_with(cut, lambda spec, window: None if objective(spec) == "waits" else 1000)
    broken = [(objective(each.spec), each.error) for each in found.tried if each.error]
    assert (broken, found.verdict) == ([("waits", "broke")], "keep")


def test_failed_present_setting_prevents_result(cut):
    with pytest.raises(InputError, match="lookahead / walltime: broke"):
        found_with(cut, lambda spec, window: None if objective(spec) == "balance" else 1000)


def test_progress_ends_at_total(cut):
    told = []
    tune(TuningRequest(Goal(), PRESENT), cut, Stand(lambda *_: 1000.0), lambda *done: told.append(done))
    assert told == sorted(told)
    assert {total for _, total in told} == {told[-1][0]}


def test_json_is_complete(cut):
    found = found_with(cut, waits_are_half, beside=(PolicySpec("slurm"),))
    content = json.loads(json.dumps(tuning_result_to_json(found, ["a note"])))
    assert (content["verdict"], content["chosen"]["changes"]) == ("better", "objective=waits")
    assert content["chosen"]["against_present"]["score"]["ratio"] == pytest.approx(0.5, abs=0.01)
    assert content["beside"][0]["policy"] == "slurm / walltime"
    assert len(content["tried"]) == len(list_candidate_settings(PRESENT))
    assert content["notes"] == ["a note"]


# ------------------------------------------------------------------------------------------------------ real replays


def test_trial_is_stored_with_all_its_sums(cut):
    window = cut.all[0]
    sums = replay_window_sums(PolicySpec("easy"), window)
    assert sums.jobs == window.judged
    assert TRIAL_FORMAT.decode(TRIAL_FORMAT.encode(sums)) == sums


def test_replays_in_processes_are_equal_and_cached(cut, tmp_path):
    windows = cut.all[:2]
    trials = [tuner.SettingTrial(PolicySpec("easy"), windows), tuner.SettingTrial(PolicySpec("unknown"), windows)]
    kept, reports = CaseStore(tmp_path, TRIAL_FORMAT), []
    easy, failure = SettingTrialRunner(2, kept)(trials, reports.append)
    assert easy == [replay_window_sums(PolicySpec("easy"), window) for window in windows]
    assert "unknown" in failure
    assert (reports[-1], kept.found) == (4.0, 0)
    assert SettingTrialRunner(2, kept)(trials[:1], reports.append) == [easy]
    assert kept.found == 2


def test_dying_process_fails_only_its_setting(cut, tmp_path, monkeypatch):
    """Those that shared its process are tried again, and what was finished before is not."""
    (tmp_path / "deadly.py").write_text(
        "import os\nfrom cpsched import Dispatcher\n\n\nclass Deadly(Dispatcher):\n"
        "    def decide(self, snapshot, need='plan'):\n        os._exit(7)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = ["easy", "deadly:Deadly", "fcfs", "easy", "easy"]
    found = SettingTrialRunner(1)(
        [tuner.SettingTrial(PolicySpec(name), cut.all[:1]) for name in names], lambda done: None
    )
    assert found[1] == "its process died with exit code 7"
    assert found[0] == found[3] == found[4]
    assert isinstance(found[2], list)


@pytest.fixture
def month(tmp_path):
    path = tmp_path / "month.swf"
    path.write_text(as_swf(weeks(days=14, jobs_a_day=30)))
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--goal", "wait"], "unknown goal 'wait'"),
        (["--limits", "awf"], "limits=awf: must be NAME=NUMBER"),
        (["--present", "nobody"], "nobody"),
        (["--weeks", "0"], "--weeks=0.0: must be positive"),
        (["--window-days", "0"], "--window-days=0.0: must be positive"),
        (["--weeks", "0.01"], "must be at least .* windows"),
        (["--system", "nowhere"], "nowhere"),
    ],
)
def test_rejects_invalid_input_in_one_line(month, tmp_path, words, message):
    ended = invoke("tune", str(month), "--keep", str(tmp_path / "kept"), *words)
    assert ended.exit_code == 2
    assert re.search(message, ended.stderr)
    assert "Traceback" not in ended.stderr


def test_command_prints_one_object_and_resumes(month, tmp_path, monkeypatch):
    few = [PRESENT, PolicySpec.parse("lookahead objective=slowdown")]
    monkeypatch.setattr(tuner, "list_candidate_settings", lambda present: few)
    words = ("tune", str(month), "--goal", "waits", "--limits", "none", "--seeds", "1", "--keep", str(tmp_path / "k"))
    first, again = invoke(*words, "--json"), invoke(*words)
    assert first.exit_code == 0, first.stderr
    content = json.loads(first.stdout)
    assert [each["changes"] for each in content["tried"]].count("nothing") == 1
    assert content["verdict"] in ("better", "unclear", "keep")
    assert "replays were read from" not in first.stderr
    assert "replays were read from" in again.stderr
    assert content["sentence"][:20] in again.stdout
    assert "longest wait (longest)" in again.stdout, "the name that --limits accepts"
    assert re.search(r"none \(current setting\) +1 +\d", again.stdout), "with its number of seeds"


def test_rejects_negative_window():
    with pytest.raises(InvalidValue):
        split_last_weeks(weeks(), 4, -1, 100)


def test_each_part_of_trial_key_counts(cut, monkeypatch):
    """Each part of the key is changed by itself: results of older code, too, are made again."""
    first, second = cut.all[:2]
    other = replace(PRESENT, dispatcher_settings={"effort": "1"})
    keys = {trial_key(spec, window) for spec, window in [(PRESENT, first), (other, first), (PRESENT, second)]}
    monkeypatch.setattr(case_store, "code_digest", lambda: "newer")
    assert len({*keys, trial_key(PRESENT, first)}) == 4
