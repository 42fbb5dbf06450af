"""What the tuner beside the bridge has found, changed and taken back: a value, its rules, and the file that keeps it.

The rules need no clock and no file: `next_step` says what a finding leads to at an instant. In mode `on` a setting is
changed where the gain is clear, and in every window of the last weeks; at most once a day, and not again until the
change has been judged. A change that turned out worse is taken back, and not made again for a while.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cpsched.errors import CpschedError
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.store.damage import Damaged, content, start_of
from cpsched_bridge.store.database import OWNERS_ALONE

DAY_S = 86_400
LEAST_GAIN = 0.03
"""A change for less is not worth the unrest."""
WORSE = 0.02
"""A change that came out worse than what was before by more than this share is taken back."""
JUDGED_AFTER_S = 7 * DAY_S
"""How long a change is in force before it is judged, and before another one may follow."""
REFUSED_S = 28 * DAY_S
"""How long a setting that was taken back is not tried again."""
_MOST_HISTORY = 50
_MOST_BYTES = 1_000_000

Mode = Literal["off", "advise", "on"]
Kind = Literal["tuned", "tuned_back", "tuning_advises", "tuning_failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one run of the tuner found, as plain values."""

    at_s: int
    """The cluster's second at which it was asked."""
    verdict: str
    sentence: str
    chosen: PolicySpec | None = None
    changes: str = ""
    ratio: float = 1.0
    """The score of the chosen setting against the present one, on windows that did not choose it."""
    low: float = 1.0
    high: float = 1.0
    worst_window: float = 1.0
    """The score of the window of the last weeks in which the chosen setting gains least."""
    came: float | None = None
    """Where a change is in force: its score against what was before, over the days since; None: too early."""

    @property
    def clear(self) -> bool:
        """Whether the gain is large enough, beyond chance, and in all of the last weeks."""
        return self.verdict == "better" and self.ratio <= 1 - LEAST_GAIN and self.high < 1 and self.worst_window <= 1


@dataclass(frozen=True, slots=True)
class TuningEntry:
    """A line of the history: what was changed or taken back, what was expected, and what came."""

    at_s: int
    kind: Kind
    changes: str
    expected: float | None = None
    came: float | None = None


@dataclass(frozen=True, slots=True)
class TuningState:
    """Everything that is kept over a restart. `said` is the policy of the settings file that it belongs to."""

    said: str = ""
    tuned: PolicySpec | None = None
    """In force in place of what the file says."""
    changes: str = ""
    since_s: int = 0
    expected: float | None = None
    came: float | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    """By policy in words, until when it is not tried again."""
    asked_s: int = 0
    """When the tuner was last run."""
    advice: str = ""
    """The last verdict, for people."""
    expects: float | None = None
    """The ratio that the verdict expects of the change that it names."""
    failure: str = ""
    """Why the last run came to nothing."""
    history: tuple[TuningEntry, ...] = ()

    @property
    def status(self) -> str:
        """What people are told, in one line; empty before the first verdict."""
        parts = []
        if self.tuned is not None:
            came = "not judged yet" if self.came is None else f"came {percent(self.came)}"
            expected = "" if self.expected is None else f"expected {percent(self.expected)}, "
            parts.append(f"changed {self.changes} ({expected}{came})")
        return "; ".join([*parts, *filter(None, (self.advice, self.failure))])


def percent(ratio: float) -> str:
    """A ratio of scores for people: `-12 %`."""
    return f"{100 * (ratio - 1):+.0f} %"


@dataclass(frozen=True, slots=True)
class TuningStep:
    """What a finding leads to: the new state, what is told of it, and whether the policy changes."""

    state: TuningState
    kind: Kind | None = None
    detail: str = ""
    changed: bool = False


def next_step(state: TuningState, finding: Finding, mode: Mode) -> TuningStep:
    """What is done about a finding; in mode `advise` it is told, and nothing else."""
    now_s = finding.at_s
    told = replace(
        state,
        asked_s=now_s,
        advice=finding.sentence,
        expects=finding.ratio if finding.chosen is not None else None,
        failure="",
        came=state.came if finding.came is None else finding.came,
        refused={words: until_s for words, until_s in state.refused.items() if until_s > now_s},
    )
    if mode != "on":
        news = finding.verdict == "better" and finding.sentence != state.advice
        return TuningStep(told, "tuning_advises" if news else None, finding.sentence)
    judged = state.tuned is not None and now_s - state.since_s >= JUDGED_AFTER_S
    if judged and finding.came is not None and finding.came > 1 + WORSE:
        assert state.tuned is not None
        words = f"taken back, {state.changes}: expected {percent(state.expected or 1.0)}, came {percent(finding.came)}"
        entry = TuningEntry(now_s, "tuned_back", state.changes, state.expected, finding.came)
        back = replace(
            told, tuned=None, changes="", since_s=now_s, expected=None, came=None,
            refused={**told.refused, str(state.tuned): now_s + REFUSED_S}, history=_longer(state, entry),
        )  # fmt: skip
        return TuningStep(back, "tuned_back", words, True)
    early = now_s - state.since_s < (JUDGED_AFTER_S if state.tuned is not None else DAY_S) and bool(state.history)
    if not finding.clear or finding.chosen is None or early or str(finding.chosen) in told.refused:
        return TuningStep(told)
    words = f"{finding.changes}: {percent(finding.ratio)} is expected"
    if state.tuned is not None and state.came is not None:
        words += f"; the change before ({state.changes}) came {percent(state.came)}"
    entry = TuningEntry(now_s, "tuned", finding.changes, finding.ratio, None)
    changed = replace(
        told, tuned=finding.chosen, changes=finding.changes, since_s=now_s, expected=finding.ratio, came=None,
        history=_longer(state, entry),
    )  # fmt: skip
    return TuningStep(changed, "tuned", words, True)


def failed(state: TuningState, now_s: int, why: str) -> TuningStep:
    """The tuner came to nothing: told where that is news, and the next run is a day later as ever."""
    news = why != state.failure
    return TuningStep(replace(state, asked_s=now_s, failure=why), "tuning_failed" if news else None, why)


def _longer(state: TuningState, entry: TuningEntry) -> tuple[TuningEntry, ...]:
    return (*state.history, entry)[-_MOST_HISTORY:]


class TuningFile:
    """The state in the state directory. What cannot be read, or belongs to other settings, is forgotten."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, said: PolicySpec | None = None) -> TuningState:
        """What was kept; the beginning where nothing was, or where the file's policy is not `said` any more."""
        found = TuningState()
        with suppress(OSError, Damaged, CpschedError), content():
            found = from_json(json.loads(start_of(self.path, _MOST_BYTES)))
        if said is not None and found.said != str(said):
            return TuningState(said=str(said))
        return found

    def write(self, state: TuningState) -> None:
        """Keep it. Raises `OSError`."""
        write_for_the_owner(self.path, json.dumps(asdict(state)).encode())


def write_for_the_owner(path: Path, content: bytes) -> None:
    """Write a file that its owner alone may read, whole or not at all. Raises `OSError`."""
    draft = path.with_suffix(".new")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNERS_ALONE)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
    draft.replace(path)


def from_json(value: Any) -> TuningState:
    """The state of a JSON object; raises `ValueError`, `TypeError` or `LookupError` for anything else."""
    tuned = value["tuned"]
    history = tuple(TuningEntry(**entry) for entry in value["history"])
    numbers = [value[name] for name in ("expected", "came", "expects") if value[name] is not None]
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise ValueError("a ratio must be a number")
    fields = {**value, "tuned": None if tuned is None else PolicySpec(**tuned), "history": history}
    fields["refused"] = {str(words): int(until_s) for words, until_s in value["refused"].items()}
    for name in ("since_s", "asked_s"):
        fields[name] = int(value[name])
    return TuningState(**fields)
