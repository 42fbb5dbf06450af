"""The drawing of the compiled floor: one small instant, and what a plan does to its groups, ranges and moves.

Nothing in the drawing is made up: the kernels' own functions run here as plain Python, on the state that a kernel would
be handed, and the drawing shows the fields of that state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from cpsched import registry
from cpsched.jit.handles import Handle
from cpsched.kernels.node_classes import OPEN_ENDED
from cpsched.kernels.node_layout import build_runs
from cpsched.kernels.node_scheduling import (
    earliest_reservation,
    open_workspace,
    place_job,
    resize_class_columns,
    starts_now,
)
from cpsched.kernels.pool_scheduling import open_plan
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.markup import Markup, tag
from cpsched.model import DISTINCT, Cluster, ClusterState, Job, Request, RunningJob, Snapshot, frozen_array
from cpsched.planning import scheduling_state_of
from cpsched.policy import Policy
from docs.scripts import svg

NODES, CORES, MINUTE = 12, 4, 60
NOW_S = 100 * MINUTE
RUNNING = (("P", 30, 2, (2, 3, 4)), ("Q", 60, 4, (7, 8)))
"""Name, minutes until the end, cores on each node, nodes."""
QUEUED = (("X", 20, 3), ("Y", 60, 6))
"""Name, minutes, whole nodes."""


def snapshot() -> Snapshot:
    """Twelve nodes of four cores; P and Q run, X and Y wait."""
    cluster = Cluster.of([[CORES]] * NODES, ["cores"])
    jobs = {
        name: Job(id, NOW_S - 600, minutes * MINUTE, Request(units, (cores,), DISTINCT), "ann", name, "main")
        for id, (name, minutes, cores, units) in enumerate(
            [*((name, 90, cores, len(nodes)) for name, _, cores, nodes in RUNNING)]
            + [(name, minutes, CORES, units) for name, minutes, units in QUEUED],
            start=1,
        )
    }
    free = [[CORES] for _ in range(NODES)]
    for _, _, cores, nodes in RUNNING:
        for node in nodes:
            free[node][0] -= cores
    running = tuple(
        RunningJob(jobs[name], NOW_S + (left - 90) * MINUTE, tuple((node, 1) for node in nodes))
        for name, left, _, nodes in RUNNING
    )
    scene = ClusterState(NOW_S, cluster, frozen_array(free), tuple(jobs[name] for name, *_ in QUEUED), running)
    return Policy(registry.predictor("walltime"), registry.dispatcher("list-reg", {})).estimated(scene)


@dataclass(frozen=True, slots=True)
class Group:
    """A group with nodes: its number, its line as (minutes from now or None for ever, cores), its range of places."""

    number: int
    line: tuple[tuple[int | None, int], ...]
    places: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Stage:
    """The groups at one stage of a plan, and the moves so far as (group, first place, nodes)."""

    title: str
    groups: tuple[Group, ...]
    moves: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Floor:
    """The layout (by place its node), the runs as (first place, first node), three stages, and planned starts."""

    node_at: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]
    stages: tuple[Stage, ...]
    start_min: tuple[int, ...]


@lru_cache
@np.errstate(over="ignore")  # hashes wrap around, as they do in compiled code
def floor() -> Floor:
    """Plan the example by the kernels' own functions."""
    site: Any = _plain(scheduling_state_of(snapshot()))
    open_plan(site.draft, site.queued)
    open_workspace(site, site.queued)
    trial, layout = site.trial, site.trial.layout
    for g in range(layout.groups):
        layout.asked[g] = 1
    build_runs(trial)
    layout.times = 2
    runs = tuple((int(layout.at[r]), int(layout.node[r])) for r in range(layout.runs))
    ends = [*(at for at, _ in runs[1:]), NODES]
    node_at = tuple(node + k for (at, node), end in zip(runs, ends, strict=True) for k in range(end - at))
    stages = [_stage("The plan begins", trial)]
    for position, (name, *_) in enumerate(QUEUED):
        resize_class_columns(trial)
        slot = site.queue[position]
        if starts_now(site, slot):
            place_job(site, position, NOW_S, False)
            stages.append(_stage(f"{name} starts now", trial))
        else:
            start_s = earliest_reservation(site, slot, NOW_S)
            place_job(site, position, start_s, True)
            begin = _minutes(start_s)
            stages.append(_stage(f"{name} reserves minutes {begin} to {begin + QUEUED[position][1]}", trial))
    starts = tuple(_minutes(int(site.draft.plan_s[position])) for position in range(site.queued))
    return Floor(node_at, runs, tuple(stages), starts)


def _plain(handle: Handle | SchedulingState) -> SimpleNamespace:
    """The fields of a handle as plain attributes, on which the kernels' functions run as plain Python."""
    fields = handle.__getstate__().items()
    return SimpleNamespace(**{name: _plain(value) if isinstance(value, Handle) else value for name, value in fields})


def _minutes(at_s: int) -> int:
    return (at_s - NOW_S) // MINUTE


def _stage(title: str, trial: Any) -> Stage:
    groups = trial.groups
    found = []
    for g in range(groups.count):
        if groups.size[g] == 0:
            continue
        steps = range(groups.first[g], groups.first[g] + groups.length[g])
        line = tuple(
            (None if groups.at[step] == OPEN_ENDED else _minutes(int(groups.at[step])), int(groups.free[step, 0]))
            for step in steps
        )
        found.append(Group(g, line, (int(groups.begin[g]), int(groups.begin[g] + groups.size[g]))))
    columns = trial.moved, trial.moved_begin, trial.moved_count
    moves = tuple(
        (int(g), int(at), int(n)) for g, at, n in zip(*(each[: trial.moves] for each in columns), strict=True)
    )
    return Stage(title, tuple(found), moves)


# ----------------------------------------------------------------------------------------------------- the drawing

COLOURS = ("#90caf9", "#ffcc80", "#ef9a9a", "#a5d6a7", "#ce93d8", "#fff59d")
"""By number of a group."""
LEFT, CELL, WIDTH, LINE_MIN = 24, 34, 900, 90


def picture() -> str:
    """The example as SVG: nodes, lines, the layout with its runs, and the ranges at each stage."""
    shown = floor()
    first = shown.stages[0]
    group_of = {place: g.number for g in first.groups for place in range(*g.places)}
    parts = [
        _text(
            LEFT,
            20,
            "Nodes by index, each in the colour of its group; the letter is the job that runs there",
            bold=True,
        )
    ]
    runs_on = {node: name for name, _, _, nodes in RUNNING for node in nodes}
    for place, node in enumerate(shown.node_at):
        parts += _cell(LEFT + CELL * node, 30, COLOURS[group_of[place]], f"{node}{runs_on.get(node, '')}")

    parts.append(_text(LEFT, 92, "Lines: cores free on a node of each group, over the minutes from now", bold=True))
    for i, group in enumerate(first.groups):
        parts += _chart(LEFT + 280 * i, 104, group)

    parts.append(
        _text(
            LEFT,
            226,
            "Layout: places in a row, group by group; below it the runs, nodes of successive indices",
            bold=True,
        )
    )
    for place, node in enumerate(shown.node_at):
        x = LEFT + CELL * place
        parts += _cell(x, 246, COLOURS[group_of[place]], str(node))
        parts.append(_text(x + CELL / 2, 242, str(place), "middle", size=9))
    for r, (at, _) in enumerate(shown.runs):
        end = shown.runs[r + 1][0] if r + 1 < len(shown.runs) else NODES
        x, wide = LEFT + CELL * at, CELL * (end - at)
        parts.append(tag("path", d=f"M{x + 3} 284v5h{wide - 6}v-5", fill="none", stroke=svg.INK))
        parts.append(_text(x + wide / 2, 302, f"run {r}", "middle", size=10))

    parts.append(_text(LEFT, 334, "Ranges: what a trial does to the groups", bold=True))
    y = 346
    for stage, before in zip(shown.stages, ((), *(each.moves for each in shown.stages)), strict=False):
        parts += _ranges(y, stage, stage.moves[len(before) :], shown.node_at)
        y += 82
    return svg.sheet("Groups, lines, runs, ranges and moves of a small plan", WIDTH, y, *parts)


def _ranges(y: int, stage: Stage, moves: tuple[tuple[int, int, int], ...], node_at: tuple[int, ...]) -> list[Markup]:
    """One stage: the row of places in the colours of its groups, and beside it what happened and the new lines."""
    parts = [_text(LEFT, y + 12, stage.title, size=11)]
    for group in stage.groups:
        for place in range(*group.places):
            parts += _cell(LEFT + CELL * place, y + 18, COLOURS[group.number], str(node_at[place]))
        middle = LEFT + CELL * sum(group.places) / 2
        parts.append(_text(middle, y + 66, f"group {group.number}", "middle", size=9))
    right = LEFT + CELL * NODES + 20
    texts = [f"move: group {g} gives {n} nodes from place {at} on" for g, at, n in moves]
    texts += [f"group {group.number}: {_steps(group)}" for group in stage.groups[len(stage.groups) - len(moves) :]]
    return parts + [_text(right, y + 12 + 15 * i, text, size=11) for i, text in enumerate(texts)]


def _steps(group: Group) -> str:
    return ", ".join(f"({'ever' if at is None else f'{at} min'}, {cores})" for at, cores in group.line)


def _chart(x: int, y: int, group: Group) -> list[Markup]:
    """The line of a group as stairs, with its steps in words."""
    height, minute = 60, 2.4
    path, level = "", 0.0
    for at, cores in group.line:
        level = y + height - height * cores / CORES
        path += f"M{x} {level:.0f}" if not path else f"H{x + minute * (at or 0):.0f}V{level:.0f}"
    path += f"H{x + minute * LINE_MIN:.0f}"
    return [
        svg.box(x, y, minute * LINE_MIN, height, "#fafafa", "#cfd8dc"),
        tag("path", d=path, fill="none", stroke=COLOURS[group.number], stroke_width=4),
        _text(x, y + height + 16, f"group {group.number}: {_steps(group)}", size=11),
    ]


def _cell(x: float, y: float, fill: str, text: str) -> list[Markup]:
    return [svg.box(x, y, CELL - 2, CELL - 2, fill, "#607d8b", rx=3), _text(x + CELL / 2 - 1, y + 21, text, "middle")]


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, bold: bool = False) -> Markup:
    return svg.text(x, y, words, svg.INK, anchor, font_size=size, font_weight="bold" if bold else None)
