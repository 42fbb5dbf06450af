"""Model the pace of a bridge in control mode: it decides once per interval, and its starts take effect later.

In a replay, a dispatcher decides in each second with an event, and its starts take effect immediately. In contrast, a
bridge reads the state, decides, releases jobs and waits for Slurm; in the meantime, the nodes are idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from cpsched.errors import InvalidValue

INTERVAL, LAG = "interval", "lag"
MOST_S = 3600
"""Maximum interval and lag in seconds."""
BRIDGE_INTERVAL_S = 1
"""Default of the bridge's setting `cycle.interval_s`."""
BRIDGE_LAG_S = 0.7
"""Additional delay in seconds of a start under a bridge compared with Slurm alone, once its nodes are free. Measured:
1.2 to 2.1 s and 0.8 to 1.1 s on a live cluster, midpoints 1.65 and 0.95 s (docs/evidence.md, forecasts and live runs).
"""
_GOLDEN = 0.6180339887498949
"""The fractional parts of the multiples of this number are evenly spread, however many there are."""


@dataclass(frozen=True, slots=True)
class DecisionTiming:
    """The interval and lag of decisions.

    - `interval_s`: rounds take place at multiples of this interval, or with 0 in each second with an event. Values from
      0 to 1 are equivalent, because a replay has whole seconds.
    - `lag_s`: the mean delay of a start after its round. Each delay is a whole number of seconds.
    """

    interval_s: int = 0
    lag_s: float = 0.0

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> DecisionTiming:
        """Parse the pace in a case's settings. Raise `InvalidValue`."""
        return cls(int(_seconds(texts, INTERVAL, whole=True)), _seconds(texts, LAG, whole=False))

    @property
    def words(self) -> str:
        """Return the pace as a phrase for a report."""
        look = f"a round every {self.interval_s} s" if self.interval_s else "a round whenever anything happens"
        return f"{look}, starts {self.lag_s:g} s later" if self.lag_s else look


def _seconds(texts: Mapping[str, str], name: str, whole: bool) -> float:
    text = texts.get(name, "0")
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_S:
        raise InvalidValue(name, text, f"must be {'whole ' if whole else ''}seconds, from 0 to {MOST_S}")
    return value


@dataclass(slots=True)
class StartLagSequence:
    """The delays of successive starts: whole seconds with mean `lag_s`, the same in every replay."""

    lag_s: float
    _turn: count[int] = field(default_factory=lambda: count(1))

    def next_delay_s(self) -> int:
        """Return the delay of the next start."""
        return int(self.lag_s + next(self._turn) * _GOLDEN % 1.0)
