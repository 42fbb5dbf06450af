"""Model the bridge's timing in control mode.

In a replay without this model, a dispatcher decides in each second with an event, and its starts take effect
immediately. A bridge decides once per interval: it reads the state, decides, releases jobs and waits for Slurm.
Meanwhile, the nodes are idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from cpsched.errors import InvalidValue

INTERVAL, LAG = "interval", "lag"
MAX_DELAY_S = 3600
"""Maximum interval and lag, in seconds."""
BRIDGE_INTERVAL_S = 1
"""Default of the bridge's setting `cycle.interval_s`, in seconds."""
BRIDGE_LAG_S = 0.7
"""Additional delay (s) of a start under a bridge after its nodes become free. It is the difference of the midpoints of
1.2 to 2.1 s with the bridge and 0.8 to 1.1 s with Slurm alone (docs/evidence.md, forecasts and live runs).
"""
_GOLDEN_RATIO = 0.6180339887498949
"""The fractional parts of the first n multiples of this number are evenly spread for every n."""


@dataclass(frozen=True, slots=True)
class DecisionTiming:
    """The interval and lag of decisions.

    - `interval_s`: decisions are made at multiples of this interval; 0 means in each second with an event. The values 0
      and 1 are equivalent, because a replay has a resolution of one second.
    - `lag_s`: the mean delay of a start after its decision. Each delay is a whole number of seconds.
    """

    interval_s: int = 0
    lag_s: float = 0.0

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> DecisionTiming:
        """Parse the interval and lag in a case's settings. Raise `InvalidValue`."""
        return cls(int(_parse_seconds(texts, INTERVAL, whole=True)), _parse_seconds(texts, LAG, whole=False))

    @property
    def timing_text(self) -> str:
        """Describe the interval and lag for a report."""
        look = f"a round every {self.interval_s} s" if self.interval_s else "a round at every event"
        return f"{look}, starts {self.lag_s:g} s later" if self.lag_s else look


def _parse_seconds(texts: Mapping[str, str], name: str, whole: bool) -> float:
    text = texts.get(name, "0")
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_DELAY_S:
        raise InvalidValue(
            name, text, f"must be a {'whole ' if whole else ''}number of seconds from 0 to {MAX_DELAY_S}"
        )
    return value


@dataclass(slots=True)
class StartLagSequence:
    """The delays of successive starts in whole seconds, with mean `lag_s`.

    The sequence is the same in every replay.
    """

    lag_s: float
    _turn: count[int] = field(default_factory=lambda: count(1))

    def next_delay_s(self) -> int:
        """Return the delay of the next start."""
        return int(self.lag_s + next(self._turn) * _GOLDEN_RATIO % 1.0)
