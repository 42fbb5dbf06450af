"""The worked example: one small queue, decided by each dispatcher, as a table and as a drawing.

The decision comes from the same code that decides on a cluster; nothing here knows what a dispatcher will answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from cpsched import registry
from cpsched.feasibility import verify
from cpsched.markup import Markup
from cpsched.model import Cluster, ClusterState, Job, Request, RunningJob, frozen_array
from cpsched.policy import Policy
from cpsched.policy_spec import setting_names
from docs.scripts import svg
from docs.scripts.markdown import table

SHOWN = tuple(listing.name for listing in registry.DISPATCHERS.builtins())
"""The dispatchers that have an example: all of the project's own."""

PROCESSORS = 8
NOW_MIN = 60


@dataclass(frozen=True, slots=True)
class Line:
    """One job of the example: processors, requested minutes, the minute it came, the minute it started."""

    name: str
    processors: int
    minutes: int
    came_min: int
    started_min: int | None = None


LINES = (
    Line("R1", 2, 80, 25, 30),
    Line("R2", 3, 40, 35, 40),
    Line("A", 6, 30, 40),
    Line("B", 2, 40, 45),
    Line("C", 1, 20, 50),
    Line("D", 2, 15, 55),
    Line("E", 1, 60, 58),
    Line("F", 2, 10, 59),
)


def scene() -> ClusterState:
    """The moment at which all dispatchers are asked."""
    jobs = {
        line: Job(id, 60 * line.came_min, 60 * line.minutes, Request(line.processors, (1,)), "ann", line.name, "main")
        for id, line in enumerate(LINES, start=1)
    }
    running = tuple(
        RunningJob(job, 60 * line.started_min, ((0, line.processors),))
        for line, job in jobs.items()
        if line.started_min is not None
    )
    free = PROCESSORS - sum(line.processors for line in jobs if line.started_min is not None)
    queue = tuple(job for line, job in jobs.items() if line.started_min is None)
    cluster = Cluster.of([[PROCESSORS]], ["processors"])
    return ClusterState(60 * NOW_MIN, cluster, frozen_array([[free]]), queue, running)


@lru_cache
def decided(name: str) -> dict[str, int | None]:
    """Minutes from now to the start of each queued job, None where the dispatcher names none."""
    searches = "effort" in setting_names(registry.DISPATCHERS.find(name))
    settings = {"effort": "1000"} if searches else {}
    policy = Policy(registry.predictor("walltime"), registry.dispatcher(name, settings))
    seen = policy.estimated(scene())
    decision = policy.decide(seen)
    assert not verify(decision, seen)
    plan_s = decision.plan_by_job(seen) | dict.fromkeys(decision.starts_by_job(seen), seen.now_s)
    found = {job.name: plan_s.get(job.id) for job in seen.queued_jobs()}
    return {job: None if start_s is None else start_s // 60 - NOW_MIN for job, start_s in found.items()}


def instance_table() -> str:
    """The jobs of the example."""
    rows = [
        (
            line.name,
            line.processors,
            f"{line.minutes} min",
            f"{NOW_MIN - line.came_min} min ago",
            "waits" if line.started_min is None else f"runs for {line.started_min + line.minutes - NOW_MIN} more min",
        )
        for line in LINES
    ]
    return table(("job", "processors", "walltime", "submitted", "now"), rows)


def example(name: str) -> str:
    """One sentence on what the dispatcher answers, and the drawing."""
    answer = decided(name)
    now = [job for job, start in answer.items() if start == 0]
    later = [f"{job} in {start} min" for job, start in answer.items() if start]
    unknown = [job for job, start in answer.items() if start is None]
    sentences = [f"Starts now: {', '.join(now) or 'none'}."]
    sentences += [f"Expected: {', '.join(later)}."] if later else []
    sentences += [f"No start named: {', '.join(unknown)}."] if unknown else []
    return f"{' '.join(sentences)}\n\n![The decision of {name}](pictures/plan-{name}.svg)"


# ----------------------------------------------------------------------------------------------------- the drawing

LEFT, TOP, LANE, MINUTE, FROM_MIN, TO_MIN = 96, 34, 20, 4.2, -30, 130
COLOURS = {"runs": ("#b0bec5", "#607d8b"), "starts": ("#66bb6a", "#2e7d32"), "planned": ("#fff3e0", "#ef6c00")}


@dataclass(frozen=True, slots=True)
class Bar:
    """A job in the drawing: minutes from now, and the lanes it is drawn in."""

    name: str
    kind: str
    begin: int
    end: int
    lanes: tuple[int, ...]


def bars(name: str) -> list[Bar]:
    """Every job whose time is known, each in lanes that are free from its begin to its end."""
    answer = decided(name)
    known = []
    for line in LINES:
        if line.started_min is not None:
            known.append((line.started_min - NOW_MIN, "runs", line))
        elif (start := answer[line.name]) is not None:
            known.append((start, "planned" if start else "starts", line))
    busy_until = [FROM_MIN] * PROCESSORS
    drawn = []
    for begin, kind, line in sorted(known, key=lambda entry: (entry[1] != "runs", entry[0], entry[2].name)):
        lanes = _lanes([lane for lane in range(PROCESSORS) if busy_until[lane] <= begin], line.processors)
        for lane in lanes:
            busy_until[lane] = begin + line.minutes
        drawn.append(Bar(line.name, kind, begin, begin + line.minutes, lanes))
    return drawn


def _lanes(free: list[int], count: int) -> tuple[int, ...]:
    """`count` of the free lanes, side by side where possible."""
    together = [
        free[i : i + count] for i in range(len(free)) if free[i : i + count] == [*range(free[i], free[i] + count)]
    ]
    return tuple(together[0] if together else free[:count])


def picture(name: str) -> str:
    """The decision as SVG: running jobs grey, starts green, expected starts outlined."""
    unknown = [job for job, start in decided(name).items() if start is None]
    width, height = LEFT + int(MINUTE * (TO_MIN - FROM_MIN)) + 16, TOP + LANE * PROCESSORS + 46
    parts = [svg.text(LEFT, 18, f"{name}: 8 processors, minutes from now")]
    for lane in range(PROCESSORS):
        parts.append(svg.text(LEFT - 8, TOP + LANE * lane + 14, f"processor {lane + 1}", svg.QUIET, "end"))
        parts.append(svg.box(LEFT, TOP + LANE * lane, MINUTE * (TO_MIN - FROM_MIN), LANE, "#fafafa", svg.GRID, rx=2))
    for minute in range(FROM_MIN, TO_MIN + 1, 10):
        parts.append(svg.text(_x(minute), TOP + LANE * PROCESSORS + 16, str(minute), svg.QUIET, "middle"))
    for bar in bars(name):
        parts += _bar(bar)
    parts.append(svg.line(_x(0), TOP - 6, _x(0), TOP + LANE * PROCESSORS, "#d32f2f", 2))
    legend = "grey: runs   green: starts now   outlined: expected start"
    if unknown:
        legend += f"   not in the picture: {', '.join(unknown)}"
    parts.append(svg.text(LEFT, height - 10, legend, style="white-space: pre"))
    return svg.sheet(f"The decision of {name}", width, height, *parts)


def _bar(bar: Bar) -> list[Markup]:
    """A rectangle and the name for each run of neighbouring lanes."""
    fill, stroke = COLOURS[bar.kind]
    x, width = _x(max(bar.begin, FROM_MIN)), MINUTE * (min(bar.end, TO_MIN) - max(bar.begin, FROM_MIN))
    runs: list[list[int]] = []
    for lane in sorted(bar.lanes):
        if runs and runs[-1][-1] == lane - 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    dash = "4 3" if bar.kind == "planned" else None
    drawn = [
        svg.box(x, TOP + LANE * run[0] + 1, width, LANE * len(run) - 2, fill, stroke, rx=2, stroke_dasharray=dash)
        for run in runs
    ]
    middles = [TOP + LANE * (run[0] + len(run) / 2) + 4 for run in runs]
    return drawn + [svg.text(x + 7, middle, bar.name, "#212121") for middle in middles]


def _x(minute: int) -> float:
    return LEFT + MINUTE * (minute - FROM_MIN)
