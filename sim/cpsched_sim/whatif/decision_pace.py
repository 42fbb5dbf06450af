"""The pace of a bridge in control: it looks at the cluster once an interval, and what it starts begins a little later.

A dispatcher of a replay is asked in each second in which anything happens, and its starts are there at once. A bridge
reads, decides, releases, and waits for Slurm; meanwhile the nodes are taken and do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from cpsched.errors import InvalidValue

INTERVAL, LAG = "interval", "lag"
MOST_S = 3600
"""No pace is slower than this."""
BRIDGE_INTERVAL_S = 1
"""`cycle.interval_s` of a bridge, unless its settings say otherwise."""
BRIDGE_LAG_S = 0.7
"""How much later a job starts under a bridge than under Slurm alone, once its nodes are free: 1.2 to 2.1 s and 0.8 to
1.1 s on a live cluster, of which the middles are 1.65 and 0.95 s (docs/evidence.md, forecasts and live runs)."""
_GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are spread evenly, however many there are."""


@dataclass(frozen=True, slots=True)
class DecidingPace:
    """How fast whoever decides is.

    - `interval_s`: rounds come at multiples of so many seconds; 0: in each second in which anything happens. Between 0
      and 1 there is no difference, as a replay knows whole seconds.
    - `lag_s`: so long after a round its starts begin, on average. Each lag is a number of whole seconds.
    """

    interval_s: int = 0
    lag_s: float = 0.0

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> DecidingPace:
        """The pace that a case spells. Raises `InvalidValue`."""
        return cls(int(_seconds(texts, INTERVAL, whole=True)), _seconds(texts, LAG, whole=False))

    @property
    def words(self) -> str:
        """The pace as a reader of a report is told it."""
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
class StartDelays:
    """The lags of one start after the other: whole seconds whose mean is `lag_s`, the same in every replay."""

    lag_s: float
    _turn: count[int] = field(default_factory=lambda: count(1))

    def next(self) -> int:
        """The lag of the next start."""
        return int(self.lag_s + next(self._turn) * _GOLDEN % 1.0)
