"""Choose a setting on one half of the windows, and test it on the other half.

1. Every candidate is replayed on the choosing half, with one seed.
2. The best candidates are replayed there with further seeds.
3. The best candidate within the goal's limits is chosen.
4. It is replayed on the judging half, with the current setting and the baseline. Only these results are reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cpsched.goal_presets import Goal, ratios_to_baseline
from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import InputError
from cpsched_sim.tuning.setting_candidates import (
    describe_changes,
    is_randomized,
    list_candidate_settings,
    to_replayable_policy,
)
from cpsched_sim.tuning.tuning_windows import TuningWindow, TuningWindowSplit
from cpsched_sim.tuning.window_replays import (
    Progress,
    RatioEstimate,
    SettingTrial,
    Trials,
    WindowMetricSums,
    goal_metric_values,
    mean_metric_sums,
    paired_ratios,
    scores_by_window,
)

FINALIST_COUNT = 4
"""Number of candidates replayed with further seeds."""
FINALIST_SEEDS = 3
BASELINE_POLICY = PolicySpec("easy")
"""The policy to which a goal's limits refer."""

Verdict = Literal["better", "keep", "unclear", "none"]
"""The verdict of tuning.

- better: another setting is significantly better than the current one.
- keep: no setting scores better.
- unclear: a setting scores better, but not significantly, or it exceeds a limit on the judging half.
- none: no setting satisfies the goal's limits.
"""


@dataclass(frozen=True, slots=True)
class TuningRequest:
    """The goal, and the current setting to improve."""

    goal: Goal
    present: PolicySpec
    beside: tuple[PolicySpec, ...] = ()
    """Further policies to evaluate on the judging half, such as the twin of Slurm's scheduler."""
    seeds: int = FINALIST_SEEDS


@dataclass(frozen=True, slots=True)
class TuningCandidateResult:
    """A candidate's ratios to the baseline on the choosing half, or an error."""

    spec: PolicySpec
    changes: str
    seeds: int
    ratios: Mapping[str, float]
    score: float
    """Score relative to the baseline; lower is better."""
    broken: Mapping[str, float]
    """The limits that the candidate exceeds, with its percentage of the baseline."""
    error: str = ""

    @property
    def fits(self) -> bool:
        """Return whether the candidate may be chosen."""
        return not self.error and not self.broken


@dataclass(frozen=True, slots=True)
class EvaluatedSetting:
    """A setting's results on the judging half: ratios by metric, including `score`."""

    spec: PolicySpec
    against_baseline: Mapping[str, RatioEstimate]
    against_present: Mapping[str, RatioEstimate]
    each_window: tuple[float, ...]
    """The score relative to the current setting, by window."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of tuning."""

    goal: Goal
    verdict: Verdict
    present: EvaluatedSetting
    chosen: EvaluatedSetting | None
    beside: tuple[EvaluatedSetting, ...]
    tried: tuple[TuningCandidateResult, ...]
    """All candidates and the current setting. Those replayed with all seeds come first. Each part is sorted, best
    first.
    """
    baseline: Mapping[str, float]
    """The baseline's metrics on the judging half; times are in seconds."""
    windows: tuple[int, int]
    """Numbers of choosing and judging windows."""
    jobs: tuple[int, int]

    @property
    def gain(self) -> RatioEstimate | None:
        """Return the chosen setting's score on the judging half, relative to the present."""
        return None if self.chosen is None else self.chosen.against_present["score"]

    @property
    def verdict_sentence(self) -> str:
        """Return the verdict as a sentence."""
        if self.verdict == "none":
            return f"No setting stays within the limits of the goal ({self.goal})."
        if self.verdict == "keep":
            return "Keep the current setting: none within the limits was better on the windows used for the choice."
        assert self.chosen is not None
        assert self.gain is not None
        change, gain = describe_changes(self.present.spec, self.chosen.spec), format_relative_change(self.gain)
        where = f"on {self.windows[1]} windows not used for the choice"
        beyond = self.goal.exceeded_limits(metric_ratios(self.chosen.against_baseline))
        if beyond:
            found = format_exceeded_limits(beyond)
            return f"No change is recommended: the best setting, {change}, exceeds a limit {where} ({found})."
        if self.verdict == "better":
            return f"Change {change}: {gain} by the goal {self.goal.name}, {where}."
        return f"No setting differs significantly from the current one: the best, {change}, scores {gain} {where}."


def format_exceeded_limits(beyond: Mapping[str, float]) -> str:
    """Format metrics with percentages of the baseline: `longest 127 %, awf 104 %`."""
    return ", ".join(f"{name} {percent:.0f} %" for name, percent in beyond.items())


def format_relative_change(estimate: RatioEstimate) -> str:
    """Format a ratio as a percentage range: `-23 % (-31 to -14)`."""
    low, high = (f"{100 * (each - 1):+.0f}" if each < 1e6 else "?" for each in (estimate.low, estimate.high))
    return f"{100 * (estimate.ratio - 1):+.0f} % ({low} to {high})"


def max_replay_count(question: TuningRequest, halves: TuningWindowSplit) -> int:
    """Return the maximum number of replays, for progress reports."""
    tried, choosing, judging = (
        len(list_candidate_settings(question.present)) + 1,
        len(halves.choosing),
        len(halves.judging),
    )
    further = (FINALIST_COUNT + 1) * (question.seeds - 1) * choosing
    return tried * choosing + further + (2 * question.seeds + 1 + len(question.beside)) * judging


def tune(
    question: TuningRequest, halves: TuningWindowSplit, replays: Trials, progress: Progress | None = None
) -> TuningResult:
    """Find the best setting for a goal.

    Raise `InputError` if the current setting or the baseline fails.
    """
    return _SettingSearch(question, halves, replays, progress or (lambda done, total: None)).find_best_setting()


class _SettingSearch:
    def __init__(self, question: TuningRequest, halves: TuningWindowSplit, replays: Trials, progress: Progress) -> None:
        self._question, self._halves, self._replays, self._progress = question, halves, replays, progress
        self._known: dict[tuple[str, str], WindowMetricSums] = {}
        """Sums by setting (including its seed) and window."""
        self._failed: dict[str, str] = {}
        """Why a replay failed, by setting."""
        self._done, self._total = 0.0, max_replay_count(question, halves)

    def find_best_setting(self) -> TuningResult:
        goal, present, seeds = self._question.goal, self._question.present, self._question.seeds
        specs, choosing, judging = list_candidate_settings(present), self._halves.choosing, self._halves.judging
        self._replay_missing_trials([BASELINE_POLICY, *specs], choosing, 1)
        self._require_replayable(BASELINE_POLICY, present)
        first = sorted((self._try_candidate(spec, 1) for spec in specs), key=_candidate_sort_key)
        finalists = [each.spec for each in first[:FINALIST_COUNT] if not each.error]
        if present not in finalists:
            finalists.append(present)
        self._replay_missing_trials(finalists, choosing, seeds)
        second = sorted((self._try_candidate(spec, seeds) for spec in finalists), key=_candidate_sort_key)
        rest = [each for each in first if each.spec not in finalists]
        mine = next(each for each in second if each.spec == present)
        best = next((each for each in second if each.fits and (each.score < mine.score or not mine.fits)), None)
        shown = [BASELINE_POLICY, present, *self._question.beside, *([best.spec] if best else [])]
        self._replay_missing_trials(shown, judging, seeds)
        self._require_replayable(BASELINE_POLICY, present)
        chosen = None if best is None or self._failure_reason(best.spec) else self._evaluate_setting(best.spec)
        verdict: Verdict = "none" if not mine.fits and best is None else "keep"
        if chosen is not None:
            gain, held = chosen.against_present["score"], metric_ratios(chosen.against_baseline)
            verdict = "better" if gain.high < 1 and not goal.exceeded_limits(held) else "unclear"
        self._progress(self._total, self._total)
        return TuningResult(
            goal,
            verdict,
            self._evaluate_setting(present),
            chosen,
            tuple(self._evaluate_setting(spec) for spec in self._question.beside if not self._failure_reason(spec)),
            (*second, *rest),
            goal_metric_values(self._window_sums(BASELINE_POLICY, judging)),
            (len(choosing), len(judging)),
            (sum(window.judged for window in choosing), sum(window.judged for window in judging)),
        )

    def _replay_missing_trials(self, specs: Sequence[PolicySpec], windows: Sequence[TuningWindow], seeds: int) -> None:
        """Replay the missing combinations, randomized settings with each seed."""
        asked: list[tuple[PolicySpec, PolicySpec, tuple[TuningWindow, ...]]] = []
        for spec in dict.fromkeys(map(repr, specs)):
            whole = next(each for each in specs if repr(each) == spec)
            if self._failure_reason(whole):
                continue
            for seeded in _with_each_seed(whole, seeds):
                left = tuple(window for window in windows if (str(seeded), window.digest) not in self._known)
                if left:
                    asked.append((whole, seeded, left))
        before = self._done

        def report_replays_done(done: float) -> None:
            self._progress(before + done, self._total)

        outcomes = self._replays([SettingTrial(seeded, left) for _, seeded, left in asked], report_replays_done)
        for (whole, seeded, left), outcome in zip(asked, outcomes, strict=True):
            self._done += len(left)
            if isinstance(outcome, str):
                self._failed[repr(whole)] = outcome
                continue
            for window, tally in zip(left, outcome, strict=True):
                self._known[str(seeded), window.digest] = tally

    def _window_sums(
        self, spec: PolicySpec, windows: Sequence[TuningWindow], seeds: int | None = None
    ) -> list[WindowMetricSums]:
        """Return the mean over the seeds for each window."""
        seeded = _with_each_seed(spec, seeds or self._question.seeds)
        return [mean_metric_sums([self._known[str(each), window.digest] for each in seeded]) for window in windows]

    def _try_candidate(self, spec: PolicySpec, seeds: int) -> TuningCandidateResult:
        goal, changed = self._question.goal, describe_changes(self._question.present, spec)
        if error := self._failure_reason(spec):
            return TuningCandidateResult(spec, changed, 0, {}, float("inf"), {}, error)
        windows = self._halves.choosing
        found = ratios_to_baseline(
            goal_metric_values(self._window_sums(spec, windows, seeds)),
            goal_metric_values(self._window_sums(BASELINE_POLICY, windows)),
        )
        return TuningCandidateResult(
            spec, changed, seeds if is_randomized(spec) else 1, found, goal.score(found), goal.exceeded_limits(found)
        )

    def _evaluate_setting(self, spec: PolicySpec) -> EvaluatedSetting:
        goal, windows = self._question.goal, self._halves.judging
        mine, baseline = self._window_sums(spec, windows), self._window_sums(BASELINE_POLICY, windows)
        present = self._window_sums(self._question.present, windows)
        return EvaluatedSetting(
            spec,
            paired_ratios(goal, mine, baseline),
            paired_ratios(goal, mine, present),
            tuple(scores_by_window(goal, mine, present)),
        )

    def _failure_reason(self, spec: PolicySpec) -> str:
        return self._failed.get(repr(spec), "")

    def _require_replayable(self, *specs: PolicySpec) -> None:
        for spec in specs:
            if error := self._failure_reason(spec):
                raise InputError(f"{spec}: {error}")


def _with_each_seed(spec: PolicySpec, seeds: int) -> list[PolicySpec]:
    return (
        [to_replayable_policy(spec, seed) for seed in range(seeds)]
        if is_randomized(spec)
        else [to_replayable_policy(spec)]
    )


def _candidate_sort_key(tried: TuningCandidateResult) -> tuple[bool, float]:
    """Return a sort key: candidates within the limits first, then by score."""
    return not tried.fits, tried.score


def metric_ratios(estimates: Mapping[str, RatioEstimate]) -> dict[str, float]:
    """Return the ratios of estimates by metric."""
    return {name: each.ratio for name, each in estimates.items()}


def tuning_result_to_json(found: TuningResult, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the result as a JSON object.

    Keys state whether ratios refer to the baseline or the current setting.
    """

    def shown(each: EvaluatedSetting | None) -> Any:
        if each is None:
            return None
        return {
            "policy": str(each.spec),
            "changes": describe_changes(found.present.spec, each.spec),
            "against_baseline": {name: _ratio_to_json(e) for name, e in each.against_baseline.items()},
            "against_present": {name: _ratio_to_json(e) for name, e in each.against_present.items()},
            "each_window": list(each.each_window),
        }

    return {
        "verdict": found.verdict,
        "sentence": found.verdict_sentence,
        "goal": {
            "name": found.goal.name, "weights": dict(found.goal.weights), "limits": dict(found.goal.limits),
        },
        "windows": {"choosing": found.windows[0], "judging": found.windows[1]},
        "jobs": {"choosing": found.jobs[0], "judging": found.jobs[1]},
        "present": shown(found.present),
        "chosen": shown(found.chosen),
        "beside": [shown(each) for each in found.beside],
        "baseline": {"policy": str(BASELINE_POLICY), "figures": dict(found.baseline)},
        "tried": [
            {"policy": str(each.spec), "changes": each.changes, "seeds": each.seeds, "ratios": dict(each.ratios),
             "score": None if each.error else each.score, "broken": dict(each.broken), "error": each.error or None}
            for each in found.tried
        ],
        "notes": list(notes),
    }  # fmt: skip


def _ratio_to_json(estimate: RatioEstimate) -> dict[str, float | None]:
    low, high = (each if each < float("inf") else None for each in (estimate.low, estimate.high))
    return {"ratio": estimate.ratio, "low": low, "high": high}
