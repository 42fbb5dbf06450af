"""Chooses a setting on one half of the windows, and says on the other half what it is worth.

1. Every candidate is replayed on the half that chooses, with one seed.
2. The best few of them are replayed there with further seeds.
3. The best that keeps the goal's limits is chosen.
4. It, the present setting and the baseline are replayed on the other half. What is told of it is from there alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cpsched.goal_presets import Goal, ratios
from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import InputError
from cpsched_sim.tuning.setting_candidates import candidates, changes, draws, replayable
from cpsched_sim.tuning.tuning_windows import Halves, TraceWindow
from cpsched_sim.tuning.window_replays import SettingTrial, Trials
from cpsched_sim.tuning.window_scores import (
    Estimate,
    MetricSums,
    Progress,
    each_window,
    mean_of,
    metric_values,
    paired_ratios,
)

FINALISTS = 4
"""Candidates that are replayed with further seeds."""
SEEDS = 3
BASELINE = PolicySpec("easy")
"""What a goal's limits are of."""

Verdict = Literal["better", "keep", "unclear", "none"]
"""better: another setting is clearly better than the present one; keep: none promises more than the present one;
unclear: one does, and that cannot be told from chance; none: no setting keeps the goal's limits.
"""


@dataclass(frozen=True, slots=True)
class TuningQuestion:
    """What is to be found out: for which goal, and beside which present setting."""

    goal: Goal
    present: PolicySpec
    beside: tuple[PolicySpec, ...] = ()
    """Further policies that are shown on the judging half, such as the twin of Slurm's scheduler."""
    seeds: int = SEEDS


@dataclass(frozen=True, slots=True)
class TriedCandidate:
    """A candidate on the half that chooses: its figures as shares of the baseline's, and what became of it."""

    spec: PolicySpec
    changes: str
    seeds: int
    ratios: Mapping[str, float]
    score: float
    """Against the baseline; less is better."""
    broken: Mapping[str, float]
    """The limits that it breaks, with its percent."""
    error: str = ""

    @property
    def fits(self) -> bool:
        """Whether it may be chosen."""
        return not self.error and not self.broken


@dataclass(frozen=True, slots=True)
class EvaluatedSetting:
    """A setting on the half that judges; each estimate is a ratio by figure, `score` among them."""

    spec: PolicySpec
    against_baseline: Mapping[str, Estimate]
    against_present: Mapping[str, Estimate]
    each_window: tuple[float, ...]
    """The score of each window against the present setting."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What came of it."""

    goal: Goal
    verdict: Verdict
    present: EvaluatedSetting
    chosen: EvaluatedSetting | None
    beside: tuple[EvaluatedSetting, ...]
    tried: tuple[TriedCandidate, ...]
    """By score, the best first; the present setting is among them."""
    baseline: Mapping[str, float]
    """The baseline's figures on the judging half, in seconds where they are times."""
    windows: tuple[int, int]
    """How many chose, and how many judged."""
    jobs: tuple[int, int]
    each_choosing: tuple[float, ...] = ()
    """The score of each window that chose, of the chosen setting against the present one."""

    @property
    def gain(self) -> Estimate | None:
        """The chosen setting's score against the present one, on windows that did not choose it."""
        return None if self.chosen is None else self.chosen.against_present["score"]

    @property
    def sentence(self) -> str:
        """The verdict for people."""
        if self.verdict == "none":
            return f"No setting keeps the limits of the goal ({self.goal})."
        if self.verdict == "keep":
            return "Keep the present setting: on the windows that choose, none within the limits was better."
        assert self.chosen is not None
        assert self.gain is not None
        change, gain = changes(self.present.spec, self.chosen.spec), format_percent_range(self.gain)
        where = f"on {self.windows[1]} windows that did not choose it"
        if self.verdict == "better":
            return f"Change {change}: {gain} by the goal {self.goal.name}, {where}."
        return f"No setting can be told from the present one: the best, {change}, came to {gain} {where}."


def format_percent_range(estimate: Estimate) -> str:
    """A ratio for people: `-23 % (-31 to -14)`."""
    low, high = (f"{100 * (each - 1):+.0f}" if each < 1e6 else "?" for each in (estimate.low, estimate.high))
    return f"{100 * (estimate.ratio - 1):+.0f} % ({low} to {high})"


def replays_at_most(question: TuningQuestion, halves: Halves) -> int:
    """How many replays it will take, for progress."""
    tried, choosing, judging = len(candidates(question.present)) + 1, len(halves.choosing), len(halves.judging)
    further = (FINALISTS + 1) * (question.seeds - 1) * choosing
    return tried * choosing + further + (2 * question.seeds + 1 + len(question.beside)) * judging


def tune(question: TuningQuestion, halves: Halves, replays: Trials, progress: Progress | None = None) -> TuningResult:
    """Find the best setting for a goal. Raises `InputError` where the present setting or the baseline fails."""
    return _Search(question, halves, replays, progress or (lambda done, total: None)).found()


class _Search:
    def __init__(self, question: TuningQuestion, halves: Halves, replays: Trials, progress: Progress) -> None:
        self._question, self._halves, self._replays, self._progress = question, halves, replays, progress
        self._known: dict[tuple[str, str], MetricSums] = {}
        """By setting with its seed, and window."""
        self._failed: dict[str, str] = {}
        """By setting, why it could not be replayed."""
        self._done, self._total = 0.0, replays_at_most(question, halves)

    def found(self) -> TuningResult:
        goal, present, seeds = self._question.goal, self._question.present, self._question.seeds
        specs, choosing, judging = candidates(present), self._halves.choosing, self._halves.judging
        self._replay([BASELINE, *specs], choosing, 1)
        self._must_work(BASELINE, present)
        first = sorted((self._tried(spec, 1) for spec in specs), key=_rank)
        finalists = [each.spec for each in first[:FINALISTS] if not each.error]
        if present not in finalists:
            finalists.append(present)
        self._replay(finalists, choosing, seeds)
        second = sorted((self._tried(spec, seeds) for spec in finalists), key=_rank)
        rest = [each for each in first if each.spec not in finalists]
        mine = next(each for each in second if each.spec == present)
        best = next((each for each in second if each.fits and (each.score < mine.score or not mine.fits)), None)
        shown = [BASELINE, present, *self._question.beside, *([best.spec] if best else [])]
        self._replay(shown, judging, seeds)
        self._must_work(BASELINE, present)
        chosen = None if best is None or self._error(best.spec) else self._shown(best.spec)
        verdict: Verdict = "none" if not mine.fits and best is None else "keep"
        if chosen is not None:
            gain, held = chosen.against_present["score"], ratios_of(chosen.against_baseline)
            verdict = "better" if gain.high < 1 and not goal.broken(held) else "unclear"
        self._progress(self._total, self._total)
        return TuningResult(
            goal,
            verdict,
            self._shown(present),
            chosen,
            tuple(self._shown(spec) for spec in self._question.beside if not self._error(spec)),
            (*second, *rest),
            metric_values(self._tallies(BASELINE, judging)),
            (len(choosing), len(judging)),
            (sum(window.judged for window in choosing), sum(window.judged for window in judging)),
            self._each(best.spec, choosing) if best is not None else (),
        )

    def _each(self, spec: PolicySpec, windows: Sequence[TraceWindow]) -> tuple[float, ...]:
        """The score of each window against the present setting."""
        mine, present = self._tallies(spec, windows), self._tallies(self._question.present, windows)
        return tuple(each_window(self._question.goal, mine, present))

    def _replay(self, specs: Sequence[PolicySpec], windows: Sequence[TraceWindow], seeds: int) -> None:
        """Replay what is not known yet; each setting with its seeds where it draws."""
        asked: list[tuple[PolicySpec, PolicySpec, tuple[TraceWindow, ...]]] = []
        for spec in dict.fromkeys(map(repr, specs)):
            whole = next(each for each in specs if repr(each) == spec)
            if self._error(whole):
                continue
            for seeded in _seeded(whole, seeds):
                left = tuple(window for window in windows if (str(seeded), window.digest) not in self._known)
                if left:
                    asked.append((whole, seeded, left))
        before = self._done

        def told(done: float) -> None:
            self._progress(before + done, self._total)

        outcomes = self._replays([SettingTrial(seeded, left) for _, seeded, left in asked], told)
        for (whole, seeded, left), outcome in zip(asked, outcomes, strict=True):
            self._done += len(left)
            if isinstance(outcome, str):
                self._failed[repr(whole)] = outcome
                continue
            for window, tally in zip(left, outcome, strict=True):
                self._known[str(seeded), window.digest] = tally

    def _tallies(self, spec: PolicySpec, windows: Sequence[TraceWindow], seeds: int | None = None) -> list[MetricSums]:
        """Per window the mean over the seeds."""
        seeded = _seeded(spec, seeds or self._question.seeds)
        return [mean_of([self._known[str(each), window.digest] for each in seeded]) for window in windows]

    def _tried(self, spec: PolicySpec, seeds: int) -> TriedCandidate:
        goal, told = self._question.goal, changes(self._question.present, spec)
        if error := self._error(spec):
            return TriedCandidate(spec, told, 0, {}, float("inf"), {}, error)
        windows = self._halves.choosing
        found = ratios(
            metric_values(self._tallies(spec, windows, seeds)), metric_values(self._tallies(BASELINE, windows))
        )
        return TriedCandidate(spec, told, seeds if draws(spec) else 1, found, goal.score(found), goal.broken(found))

    def _shown(self, spec: PolicySpec) -> EvaluatedSetting:
        goal, windows = self._question.goal, self._halves.judging
        mine, baseline = self._tallies(spec, windows), self._tallies(BASELINE, windows)
        present = self._tallies(self._question.present, windows)
        return EvaluatedSetting(
            spec,
            paired_ratios(goal, mine, baseline),
            paired_ratios(goal, mine, present),
            self._each(spec, windows),
        )

    def _error(self, spec: PolicySpec) -> str:
        return self._failed.get(repr(spec), "")

    def _must_work(self, *specs: PolicySpec) -> None:
        for spec in specs:
            if error := self._error(spec):
                raise InputError(f"{spec}: {error}")


def _seeded(spec: PolicySpec, seeds: int) -> list[PolicySpec]:
    return [replayable(spec, seed) for seed in range(seeds)] if draws(spec) else [replayable(spec)]


def _rank(tried: TriedCandidate) -> tuple[bool, float]:
    """What keeps the limits first, then by score."""
    return not tried.fits, tried.score


def ratios_of(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """The ratios of estimates by figure."""
    return {name: each.ratio for name, each in estimates.items()}


def as_json(found: TuningResult, notes: Sequence[str] = ()) -> dict[str, Any]:
    """What came of it as one object; ratios are of the baseline or of the present setting, as they say."""

    def shown(each: EvaluatedSetting | None) -> Any:
        if each is None:
            return None
        return {
            "policy": str(each.spec),
            "changes": changes(found.present.spec, each.spec),
            "against_baseline": {name: _plain(e) for name, e in each.against_baseline.items()},
            "against_present": {name: _plain(e) for name, e in each.against_present.items()},
            "each_window": list(each.each_window),
        }

    return {
        "verdict": found.verdict,
        "sentence": found.sentence,
        "goal": {
            "name": found.goal.name, "weights": dict(found.goal.weights), "limits": dict(found.goal.limits),
        },
        "windows": {"choosing": found.windows[0], "judging": found.windows[1]},
        "jobs": {"choosing": found.jobs[0], "judging": found.jobs[1]},
        "present": shown(found.present),
        "chosen": shown(found.chosen),
        "beside": [shown(each) for each in found.beside],
        "baseline": {"policy": str(BASELINE), "figures": dict(found.baseline)},
        "tried": [
            {"policy": str(each.spec), "changes": each.changes, "seeds": each.seeds, "ratios": dict(each.ratios),
             "score": None if each.error else each.score, "broken": dict(each.broken), "error": each.error or None}
            for each in found.tried
        ],
        "notes": list(notes),
    }  # fmt: skip


def _plain(estimate: Estimate) -> dict[str, float | None]:
    low, high = (each if each < float("inf") else None for each in (estimate.low, estimate.high))
    return {"ratio": estimate.ratio, "low": low, "high": high}
