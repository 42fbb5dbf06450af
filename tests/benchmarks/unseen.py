"""Settings against `easy` on windows of many traces: some windows to choose on, others to report on.

`python -m tests.benchmarks.unseen [--half training|test|both] [--traces NAME,...] [--seeds 0,1,2] [--classes]
SETTING...`, where a setting is words of a policy: `lookahead`, `lookahead:objective=slowdown`,
`lookahead/last-two:reserve_by=walltime`.

A trace is cut into windows of some thousand jobs, of which some are spread over the trace. Odd windows are for
training, even ones for the report. Each is replayed from an empty machine. A figure is the mean, over windows and
seeds, of the ratio to `easy` in percent; the interval is a paired bootstrap, which draws windows and, in each of them,
seeds. `--against SETTING` adds the differences to one of the settings. Finished cases are kept in `build/unseen` by the
code that decided them, so that a sweep resumes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import cpsched
from cpsched.metrics import Measures
from cpsched_sim.experiment import simulate
from cpsched_sim.systems.system import System, load_system
from cpsched_sim.workloads.eurora import eurora_jobs
from cpsched_sim.workloads.load import Workload, load
from cpsched_sim.workloads.lublin import lublin_jobs
from tests.traces import ATLAS, BLUE, GAIA, KIT, KTH, RICC, THETA, trace

KEPT = Path("build/unseen")
BASE = "easy"
SEARCHING = ("lookahead", "advised", "tests.")
"""Dispatchers whose names begin so have a seed."""
FILES = {
    "KTH": (KTH, None, 3000, 28_000), "BLUE": (BLUE, None, 3000, 48_000), "KIT": (KIT, "kit-forhlr2", 3000, 24_000),
    "Gaia": (GAIA, None, 4000, 48_000), "RICC": (RICC, None, 4000, 64_000), "Theta": (THETA, None, 3000, 26_000),
    "Atlas": (ATLAS, None, 3000, 42_000),
}  # fmt: skip
"""File, system, jobs of a window, and how much of the file is read."""
WINDOWS = 8
"""Windows of a trace at most, spread evenly."""
LOADS = (0.8, 1.0, 1.5, 2.0, 3.0)
EURORA_DAYS = 0.5
LUBLIN_LOADS = (1.0, 1.15, 1.3)
LUBLIN_JOBS = 3000
MADE_UP = ("Eurora", "Lublin")
LEAST_WAIT_S = 30
"""Windows are left out in which jobs wait for less than that under the baseline, on the mean."""
MEASURES = ("af", "awf", "bsld", "p2sf", "wait", "longest", "jain")
DRAWN = 2000
"""Means of windows and seeds drawn anew that an interval is made of."""

WIDTHS = (("below 1 %", 0.0, 0.01), ("1 to 10 %", 0.01, 0.1), ("10 % and more", 0.1, np.inf))
ACTIVITIES = (("1 to 10 jobs", 0, 11), ("11 to 100", 11, 101), ("more", 101, np.inf))


@dataclass(frozen=True, slots=True)
class Case:
    """A window, and what decides it."""

    trace: str
    window: int
    setting: str
    seed: int

    @property
    def training(self) -> bool:
        """Whether settings may be chosen by it."""
        return self.window % 2 == 1


FloatArray = npt.NDArray[np.float64]
Found = Mapping[Case, Mapping[str, Any]]
"""The figures of each case."""
Row = Callable[[Found, Case], list[float]]
"""What a table says of a case."""


def windows(name: str) -> range:
    """The windows of a trace; those of generated ones are a load and a seed each."""
    if name == "Eurora":
        return range(2 * len(LOADS))
    if name == "Lublin":
        return range(2 * len(LUBLIN_LOADS))
    _, _, size, upto = FILES[name]
    return range(min(WINDOWS, upto // size))


@cache
def whole(name: str) -> Workload:
    """What is read of a trace."""
    file, system, _, upto = FILES[name]
    return load(trace(file), system, max_jobs=upto)


@cache
def window(name: str, index: int) -> Workload:
    """A window of a trace."""
    if name == "Eurora":
        jobs = eurora_jobs(days=EURORA_DAYS, load=LOADS[index // 2], seed=10 + index)
        return Workload("generated", "eurora", System(load_system("eurora")).cluster, jobs, {}, ())
    if name == "Lublin":
        system, jobs = lublin_jobs(LUBLIN_JOBS, seed=10 + index, load=LUBLIN_LOADS[index // 2])
        return Workload("generated", "pool", system.cluster, jobs, {}, ())
    work, count, size = whole(name), len(windows(name)), FILES[name][2]
    at = index * (len(work.jobs) - size) // max(1, count - 1)
    return replace(work, jobs=work.jobs[at : at + size])


def jain(measures: Measures) -> float:
    """Jain's index of the users' mean bounded slowdowns."""
    by_user = defaultdict(list)
    for job, slowdown in zip(measures.jobs, measures.bounded_slowdown.tolist(), strict=True):
        by_user[job.user].append(slowdown)
    means = np.array([np.mean(each) for each in by_user.values()])
    return float(means.sum() ** 2 / (len(means) * (means**2).sum()))


def classes(measures: Measures) -> dict[str, list[float]]:
    """By class of jobs: how many they are, and their summed waits, summed bounded slowdowns and longest wait.

    Jobs by width, as a part of the machine, and by activity, as the number of jobs of their user in the window.
    """
    width = measures.processors / measures.machine
    users = [job.user for job in measures.jobs]
    count = Counter(users)
    activity = np.array([count[user] for user in users])
    found = {}
    for kind, values, bounds in (("width", width, WIDTHS), ("activity", activity, ACTIVITIES)):
        for name, low, high in bounds:
            held = (values >= low) & (values < high)
            if held.any() and (kind == "width" or len(count) > 1):
                wait_s, slowdown = measures.wait_s[held], measures.bounded_slowdown[held]
                sums = float(held.sum()), float(wait_s.sum()), float(slowdown.sum()), float(wait_s.max())
                found[f"{kind} {name}"] = list(sums)
    return found


def words(setting: str) -> tuple[str, str, dict[str, str]]:
    """Dispatcher, predictor and settings of `dispatcher/predictor:name=value,...`; a class is `module:Class`."""
    names, _, rest = setting.partition(":")
    if rest and "=" not in rest.partition(":")[0]:
        own, _, rest = rest.partition(":")
        names = f"{names}:{own}"
    dispatcher, _, predictor = names.partition("/")
    settings = {name: value for name, _, value in (each.partition("=") for each in rest.split(",") if each)}
    return dispatcher, predictor or "walltime", settings


@cache
def code(dispatcher: str) -> str:
    """What of the program decides, as a digest: of a dispatcher of the benchmarks also its module."""
    found = sha256()
    for path in sorted(Path(cpsched.__file__).parent.rglob("*.py")):
        if not {"cp", "site", "outlook"} & {*path.parts[-3:]}:
            found.update(path.read_bytes())
    module, of_benchmarks, _ = dispatcher.rpartition(":")
    if of_benchmarks:
        found.update((Path(__file__).parent / f"{module.rpartition('.')[2]}.py").read_bytes())
    return found.hexdigest()[:12]


def figures(case: Case) -> dict[str, Any]:
    """The figures of a case, from disk where it was replayed before."""
    dispatcher, predictor, settings = words(case.setting)
    by = "" if not dispatcher.startswith(SEARCHING) else code(dispatcher)
    name = sha256(f"{case} {by}".encode()).hexdigest()[:20]
    path = KEPT / f"{name}.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    seeded = settings | ({"seed": str(case.seed)} if dispatcher.startswith(SEARCHING) else {})
    outcome = simulate(window(case.trace, case.window), dispatcher, predictor, settings=seeded)
    measures = outcome.measures
    ms = outcome.schedule.dispatch_s * 1e3
    found = {
        "af": measures.af, "awf": measures.awf, "bsld": measures.bsld, "p2sf": measures.p2sf,
        "wait": float(measures.wait_s.mean()), "longest": float(measures.wait_s.max()), "jain": jain(measures),
        "cpu_s": outcome.schedule.cpu_s,
        "ms_p99": float(np.percentile(ms, 99)) if len(ms) else 0.0,
    } | {"classes": classes(measures)}  # fmt: skip
    KEPT.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    return found


def seeds_of(setting: str, seeds: Sequence[int]) -> Sequence[int]:
    """The seeds that make a difference to a setting."""
    return seeds if setting.startswith(SEARCHING) else seeds[:1]


def cases(traces: Iterable[str], settings: Iterable[str], seeds: Sequence[int], half: str) -> Iterator[Case]:
    """All cases of a sweep, the baseline first."""
    for name in traces:
        for index in windows(name):
            base = Case(name, index, BASE, 0)
            if half not in ("both", "training" if base.training else "test"):
                continue
            if figures(base)["wait"] >= LEAST_WAIT_S:
                yield base
                for setting in settings:
                    yield from (replace(base, setting=setting, seed=seed) for seed in seeds_of(setting, seeds))


def percent(found: Found, case: Case, names: Sequence[str] = MEASURES) -> list[float]:
    """Return the figures of a case in percent of the baseline's."""
    base = found[Case(case.trace, case.window, BASE, 0)]
    return [100 * (found[case][key] or 1) / (base[key] or 1) for key in names]


def rows_of(found: Found, name: str, setting: str, row: Row = percent) -> FloatArray:
    """What `row` says of each case of a trace (or of "all") and a setting, float64[windows, seeds, entries]."""
    by_window: dict[tuple[str, int], list[list[float]]] = defaultdict(list)
    for case in found:
        if case.setting == setting and name in (case.trace, "all"):
            by_window[case.trace, case.window].append(row(found, case))
    return np.array([*by_window.values()])


def drawn_anew(rows: FloatArray) -> FloatArray:
    """Means over windows that are drawn with replacement, and seeds of each of them, float64[DRAWN, entries]."""
    rng, (windows, seeds) = np.random.default_rng(0), rows.shape[:2]
    window = rng.integers(0, windows, (DRAWN, windows, 1))
    found: FloatArray = rows[window, rng.integers(0, seeds, (DRAWN, windows, seeds))].mean(axis=(1, 2))
    return found


def interval(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The ends of the middle 95 % of what was drawn anew, float64[entries] twice."""
    low, high = np.nanquantile(values, (0.025, 0.975), axis=0)
    return low, high


def with_interval(rows: FloatArray, sign: str = "") -> list[str]:
    """By entry the mean over windows and seeds and, in brackets, its interval."""
    each = zip(rows.mean(axis=(0, 1)), *interval(drawn_anew(rows)), strict=True)
    if not sign:
        return [f"{at:.0f} ({a:.0f}-{b:.0f})" for at, a, b in each]
    return [f"{at:+.1f} ({a:+.1f} to {b:+.1f})" for at, a, b in each]


def show(found: Found, settings: Sequence[str], intervals: bool) -> None:
    """The table: by trace and setting, percent of the baseline."""
    traces = list(dict.fromkeys(case.trace for case in found))
    print(f"{'':51}{''.join(f'{name:>16}' if intervals else f'{name:>9}' for name in MEASURES)}   CPU s  p99 ms")
    for name, setting in product([*traces, "all"], settings):
        rows = rows_of(found, name, setting)
        if len(rows):
            mine = [case for case in found if case.setting == setting and name in (case.trace, "all")]
            means = rows.mean(axis=(0, 1))
            cells = [f"{each:>16}" for each in with_interval(rows)] if intervals else [f"{at:9.1f}" for at in means]
            cpu = sum(found[case]["cpu_s"] for case in mine)
            p99 = max(found[case]["ms_p99"] for case in mine)
            print(f"{name:7}{setting[-44:]:44}{''.join(cells)} {cpu:7.1f} {p99:7.1f}", flush=True)


def show_against(
    found: Found,
    settings: Sequence[str],
    present: str,
    intervals: bool = True,
    row: Row = percent,
    names: Sequence[str] = MEASURES,
) -> None:
    """Each setting against `present`, pair by pair, in points of the baseline's figure."""
    print(f"\n| | setting, against {present} | {' | '.join(names)} |\n|{'---|' * (2 + len(names))}")
    for name, setting in product([*dict.fromkeys(case.trace for case in found), "all"], settings):
        if setting != present:
            rows = rows_of(found, name, setting, row) - rows_of(found, name, present, row)
            cells = with_interval(rows, "+") if intervals else [f"{at:+.1f}" for at in rows.mean(axis=(0, 1))]
            print(f"| {name} | {setting.rpartition(':')[2]} | {' | '.join(cells)} |")


def show_classes(found: Found, settings: Sequence[str]) -> None:
    """By trace, setting and class: jobs, then mean wait, BSLD and longest wait in percent of the baseline's.

    Sums over windows and means over seeds; the longest wait is the mean of those of the windows.
    """
    print("| trace | setting | class | jobs | mean wait | BSLD | longest wait |\n|---|---|---|---|---|---|---|")
    kinds = [f"width {name}" for name, *_ in WIDTHS] + [f"activity {name}" for name, *_ in ACTIVITIES]
    for name, setting, kind in product(dict.fromkeys(case.trace for case in found), settings, kinds):

        def sums(found: Found, case: Case, kind: str = kind) -> list[float]:
            base = found[Case(case.trace, case.window, BASE, 0)]["classes"]
            return [*found[case]["classes"][kind], *base[kind]] if kind in base else [0.0] * 8

        rows = rows_of(found, name, setting, sums)
        if not len(rows) or not rows.any():
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            means, drawn = rows.mean(axis=(0, 1)), drawn_anew(rows)
            shares = 100 * means[1:4] / means[5:8]
            low, high = interval(100 * drawn[:, 1:4] / drawn[:, 5:8])
        each = zip(shares, low, high, strict=True)
        cells = [f"{at:.0f} ({a:.0f}-{b:.0f})" if np.isfinite(at) else "nobody waits" for at, a, b in each]
        print(f"| {name} | {setting} | {kind} | {len(rows) * means[0]:.0f} | {' | '.join(cells)} |", flush=True)


def main(arguments: Sequence[str]) -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", metavar="SETTING")
    parser.add_argument("--half", choices=("training", "test", "both"), default="training")
    parser.add_argument("--traces", default=",".join((*FILES, *MADE_UP)))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--intervals", action="store_true")
    parser.add_argument("--against", metavar="SETTING", help="also the differences to this one")
    parser.add_argument("--classes", action="store_true", help="also by width of jobs and by activity of users")
    parser.add_argument("--processes", type=int, default=1, choices=(1, 2))
    given = parser.parse_args(arguments)
    seeds = [int(each) for each in given.seeds.split(",")]
    wanted = list(cases(given.traces.split(","), given.settings, seeds, given.half))
    if given.processes == 1:
        found = {case: figures(case) for case in wanted}
    else:
        with ProcessPoolExecutor(given.processes) as pool:
            found = dict(zip(wanted, pool.map(figures, wanted, chunksize=2), strict=True))
    show(found, given.settings, given.intervals)
    if given.against:
        show_against(found, given.settings, given.against, given.intervals)
    if given.classes:
        show_classes(found, given.settings)


if __name__ == "__main__":
    main(sys.argv[1:])
