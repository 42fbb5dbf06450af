"""The frontier between short waits for many and large jobs: each stop of the goal, on six traces, beside Slurm's twin.

`python -m tests.benchmarks.frontier [TRACE]...` prints the table of docs/studies/frontier.md, in percent of `easy`;
without names it also draws docs/pictures/frontier.svg. Estimates are the walltimes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cpsched.goals import FIGURES, STOPS, ratios
from cpsched_sim.experiment import simulate
from cpsched_sim.tuning.judging import FigureSums, figures
from cpsched_sim.workloads.load import Workload, load
from tests.benchmarks.lookahead import workload
from tests.traces import trace

JOBS = {
    "KTH": (0, 6000),
    "BLUE": (0, 6000),
    "KIT": (0, 6000),
    "Gaia": (6000, 6000),
    "Theta": (0, 6000),
    "RICC": (18_000, 6000),
}
"""By trace: the first job, and how many."""
FILES = {"Theta": "ALCF-Theta-2022nov-2023dec-users.swf.gz", "RICC": "RICC-2010-2.swf.gz"}
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "frontier.svg"
Figures = Mapping[str, float]


def part(name: str) -> Workload:
    """The jobs of a trace that are replayed."""
    whole = load(trace(FILES[name]), lenient=True) if name in FILES else workload(name)
    first, count = JOBS[name]
    return replace(whole, jobs=whole.jobs[first : first + count])


def measured(name: str) -> dict[str, Figures]:
    """The figures of `easy`, and as shares of them those of each stop and of the twin."""
    work = part(name)

    def of(dispatcher: str, **settings: str) -> Figures:
        found = simulate(work, dispatcher, settings=settings)
        assert not found.schedule.violations
        last_s = int(found.measures.submit_s.max()) + 1
        return figures([FigureSums.of(found.measures, 0, last_s)])

    easy = of("easy")
    rows = {stop.name: of("lookahead", objective=stop.objective) for stop in STOPS.values()} | {"slurm": of("slurm")}
    return {"easy": easy} | {row: ratios(found, easy) for row, found in rows.items()}


def table(name: str, found: Mapping[str, Figures]) -> str:
    """The rows of one trace, in percent of `easy`."""
    lines = []
    for row, shares in found.items():
        seconds = row == "easy"
        cells = [f"{shares[each]:,.4g}" if seconds else f"{100 * shares[each]:.0f} %" for each in FIGURES]
        lines.append(f"| {name if seconds else ''} | `{row}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(found: Mapping[str, Mapping[str, Figures]]) -> str:
    """A small frame for each trace: mean wait up, response time weighted by area to the right, a line by the knob."""
    side, gap, most = 150, 46, 1.5
    width, height = 3 * (side + gap) + gap, 2 * (side + gap) + gap
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="9"><rect width="{width}" height="{height}" fill="white"/>'
    ]
    for at, (name, rows) in enumerate(found.items()):
        left, top = gap + at % 3 * (side + gap), gap / 2 + at // 3 * (side + gap)

        def place(shares: Figures, left: float = left, top: float = top) -> tuple[float, float]:
            x, y = (min(most, shares[each]) for each in ("awf", "mean_wait"))
            return left + side * (x - 0.7) / 0.6, top + side * (1 - y / most)

        base = place({"awf": 1.0, "mean_wait": 1.0})
        parts.append(f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="#999"/>')
        parts.append(f'<text x="{left + 4}" y="{top + 12}" font-weight="bold">{name}</text>')
        parts.append(f'<text x="{left}" y="{top + side + 11}">AWF 70 to 130 % of easy</text>')
        parts.append(f'<path d="M{left} {base[1]:.1f}h{side}M{base[0]:.1f} {top}v{side}" stroke="#ddd" fill="none"/>')
        points = [place(rows[stop]) for stop in STOPS]
        parts.append(
            f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="#06c"/>'
        )
        marks = [*zip(STOPS, points, ["#06c"] * len(STOPS), strict=True), ("slurm", place(rows["slurm"]), "#c60")]
        for label, (x, y), colour in (*marks, ("easy", base, "#000")):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            parts.append(f'<text x="{x + 5:.1f}" y="{y - 3:.1f}" fill="{colour}">{label}</text>')
    parts.append(f'<text x="{gap}" y="{height - 6}">Upwards: mean wait, 0 to 150 % of easy.</text></svg>')
    return "\n".join(parts) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="TRACE", help=f"of {', '.join(JOBS)}; default: all")
    chosen = parser.parse_args(words).parts or list(JOBS)
    print(f"| trace | | {' | '.join(FIGURES.values())} |\n|---|---|{'---|' * len(FIGURES)}")
    found = {}
    for name in chosen:
        found[name] = measured(name)
        print(table(name, found[name]), flush=True)
    if chosen == list(JOBS):
        PICTURE.write_text(picture(found), encoding="utf-8")


if __name__ == "__main__":
    main()
