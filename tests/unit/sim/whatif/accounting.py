"""Synthetic accounting of a small site whose scheduler is the twin itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cpsched.model import NEVER
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.site.policy_file import SitePolicyFile
from cpsched_sim.systems.system_file import parse_system
from cpsched_sim.whatif.accounting_history import read_history
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_replay import replay_window
from cpsched_sim.whatif.whatif_window import ReplayedSite, WhatIfWindow, WindowPeriodOptions, cut_whatif_window

FIRST_S = 1_790_000_000 // 86_400 * 86_400
COLUMNS = (
    "JobIDRaw|User|Account|Partition|QOS|Reservation|Submit|Eligible|Start|End|State|NNodes|NCPUS|Timelimit|NodeList|"
    "ReqTRES|AllocTRES"
)
SYSTEM = """
name: small
resources: [cores]
node_types: { a: { count: 3, prefix: a, each: { cores: 4 } }, b: { count: 2, prefix: b, each: { cores: 4 } } }
partitions: { main: [a, b], old: [b] }
units: { rule: cores }
"""


def clock(at_s: int | None) -> str:
    """A time as sacct spells it."""
    if at_s is None:
        return "Unknown"
    return datetime.fromtimestamp(FIRST_S + at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def a_line(id: int = 1, submit: int = 0, start: int | None = 0, end: int | None = 100, **facts: object) -> str:
    """A line of sacct; times in seconds since the first day's midnight."""
    row: dict[str, object] = {
        "JobIDRaw": id, "User": "ada", "Account": "phys", "Partition": "main", "QOS": "normal", "Reservation": "",
        "Submit": clock(submit), "Eligible": clock(submit), "Start": clock(start), "End": clock(end),
        "State": "COMPLETED", "NNodes": 1, "NCPUS": 4, "Timelimit": "01:00:00", "NodeList": "a1",
        "ReqTRES": "", "AllocTRES": "",
    } | facts  # fmt: skip
    return "|".join(str(row[name]) for name in COLUMNS.split("|"))


def a_file(folder: Path, lines: Sequence[str], name: str = "jobs.txt") -> Path:
    """An accounting file."""
    path = folder / name
    path.write_text("\n".join([COLUMNS, *lines, ""]))
    return path


def a_window(
    folder: Path, lines: Sequence[str], span: WindowPeriodOptions | None = None, zone: str = "", site: SitePolicyFile | None = None,  # noqa: E501
    totals: Mapping[str, int] | None = None, system: str = SYSTEM,
) -> WhatIfWindow:  # fmt: skip
    """The window of these lines on the small system; without a span it begins a minute before the first midnight."""
    history = read_history(a_file(folder, lines))
    begin = datetime.fromtimestamp(FIRST_S - 60, UTC).isoformat()
    file = parse_system(Path("small"), system)
    where = ReplayedSite(file, zone=zone, policy=site, license_totals=totals or {})
    return cut_whatif_window(history, where, span or WindowPeriodOptions(from_=begin))


def replayed(window: WhatIfWindow, text: str = "slurm", half_closed: bool = False) -> Mapping[int, tuple[int, int]]:
    """(start, end) by job, in seconds since the first midnight; those that never started are not there."""
    policy = ReplaySpec(WhatIfCase.parse(text).spec).build(window.jobs)
    found = replay_window(window, policy, half_closed)
    return {
        item.job.id: (int(start_s) - FIRST_S, int(end_s) - FIRST_S)
        for item, start_s, end_s in zip(window.jobs, found.start_s, found.end_s, strict=True)
        if start_s != NEVER
    }


def a_site(folder: Path, days: int = 8, jobs_a_day: int = 60, seed: int = 1, name: str = "jobs.txt") -> Path:
    """Accounting of a crowded site, whose starts are those of the twin."""
    draw = np.random.default_rng(seed)
    count = days * jobs_a_day
    submit = np.sort(draw.integers(0, days * 86_400, count))
    run = draw.integers(300, 9_000, count)
    cores = draw.choice([1, 2, 4], count)
    users = draw.choice(["ada", "bob", "eve"], count, p=[0.5, 0.3, 0.2])

    def line(at: int, start: int) -> str:
        id, ends = at + 1, start + int(run[at])
        hours = int(run[at]) * 2 // 3600 + 1
        place = {"User": users[at], "NCPUS": cores[at], "Partition": "old" if at % 9 == 0 else "main"}
        return a_line(id, int(submit[at]), start, ends, Timelimit=f"{hours:02d}:00:00", **place)

    draft = a_window(folder, [line(at, int(submit[at])) for at in range(count)])
    starts = replayed(draft)
    return a_file(folder, [line(at, starts[at + 1][0]) for at in range(count)], name)
