"""Classify jobs by account, QOS, partition, size, length, time of week, and user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from cpsched.formatting import format_percent
from cpsched.model import IntArray
from cpsched_sim.systems.system_file import System
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.whatif.whatif_window import WhatIfWindow

MAX_CLASSES = 25
"""Maximum number of classes by partition, account or QOS. The last class contains all other jobs."""
OTHERS, UNKNOWN = "others", "unknown"
RUN_TIME_CLASSES = ((600, "below 10 min"), (3600, "10 min to 1 h"), (6 * 3600, "1 to 6 h"), (86_400, "6 h to 1 day"))
LONGEST_CLASS = "1 day and more"
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WIDE_JOB_SHARE = 0.1
"""Minimum share of the machine's processors that a wide job requests."""


@dataclass(frozen=True, slots=True, eq=False)
class JobClassification:
    """A classification of the judged jobs. `of` contains each job's index in `names`."""

    kind: str
    of: IntArray
    names: tuple[str, ...]


def classify_jobs(window: WhatIfWindow, processors: IntArray) -> list[JobClassification]:
    """Classify the judged jobs in several ways. Omit classifications with one class.

    `processors` is each judged job's amount of the first resource.
    """
    items = window.judged_jobs()
    machine = machine_processors(window)
    kinds: list[tuple[str, Iterable[str], bool]] = [
        ("partition", (item.job.queue for item in items), True),
        ("size", (_size_class(count, machine) for count in processors.tolist()), False),
        ("length", (_length_class(item.run_s) for item in items), False),
        ("account", (item.job.account for item in items), True),
        ("QOS", (item.job.qos for item in items), True),
        ("hour of the week", _hour_classes(window, items), False),
    ]
    found = [_classify_by_name(kind, names, MAX_CLASSES if cut else 10**6) for kind, names, cut in kinds]
    return [grouping for grouping in found if len(grouping.names) > 1]


def classify_by_user(window: WhatIfWindow) -> JobClassification:
    """Return the classification of the judged jobs by user."""
    return _classify_by_name("user", (item.job.user for item in window.judged_jobs()), 10**6)


def machine_processors(window: WhatIfWindow) -> int:
    """Return the number of processors of the machine."""
    return int(System(window.system, window.header).cluster.capacity[:, 0].sum())


def _classify_by_name(kind: str, names: Iterable[str], most: int) -> JobClassification:
    each = [name or UNKNOWN for name in names]
    order = [name for name, _ in Counter(each).most_common()]
    if kind in ("size", "length", "hour of the week"):
        order.sort(key=_SORT_KEYS[kind])
    kept = order[: most - 1] if len(order) > most else order
    number = {name: at for at, name in enumerate(kept)}
    shown = (*kept, OTHERS) if len(order) > most else tuple(kept)
    return JobClassification(kind, np.array([number.get(name, len(kept)) for name in each], np.int64), tuple(shown))


def _size_class(processors: int, machine: int) -> str:
    if processors >= max(2, WIDE_JOB_SHARE * machine):
        return f"wide: {format_percent(WIDE_JOB_SHARE)} of the machine and more"
    if processors == 1:
        return "1"
    power = (processors - 1).bit_length()
    low = max(2, 4 ** ((power - 1) // 2) + 1)
    return f"{low} to {4 ** ((power - 1) // 2 + 1)}"


def _length_class(run_s: int) -> str:
    return next((name for below_s, name in RUN_TIME_CLASSES if run_s < below_s), LONGEST_CLASS)


def _hour_classes(window: WhatIfWindow, items: list[TraceJob]) -> Iterable[str]:
    """Yield each job's six-hour period of the week, in the site's time zone."""
    first = window.to_local_time(window.from_s)
    known: dict[int, str] = {}
    for item in items:
        hour = (item.job.submit_s - window.from_s) // 3600
        if hour not in known:
            there = (first + timedelta(hours=hour)) if not window.zone else window.to_local_time(item.job.submit_s)
            known[hour] = f"{WEEKDAYS[there.weekday()]} {there.hour // 6 * 6:02d} to {there.hour // 6 * 6 + 6:02d} h"
        yield known[hour]


def _first_number(name: str) -> int:
    word = name.split()[0]
    return int(word) if word.isdecimal() else 1 << 60


_SORT_KEYS: dict[str, Callable[[str], Any]] = {
    "size": _first_number,
    "length": [*(name for _, name in RUN_TIME_CLASSES), LONGEST_CLASS].index,
    "hour of the week": lambda name: (WEEKDAYS.index(name.split()[0]), name),
}
