"""`cpsched demo`: a bridge in control of a simulated Eurora through a loaded morning, live; then a comparison.

All policies run through the same bridge, cycle by cycle at the events of the site, so that neither waits for a poll.
They are compared over several mornings, for one morning says little: a policy that is better on most loses on some.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cpsched.catalogue import DISPATCHERS
from cpsched.metrics import Measures
from cpsched.model import Cluster, EndedJob
from cpsched.policy_spec import PolicySpec, setting_names
from cpsched_bridge.adapters.mock.backend import MockBackend
from cpsched_bridge.adapters.mock.clocks import AcceleratedPace, EventPace, StandingClock
from cpsched_bridge.adapters.mock.morning import loaded_morning
from cpsched_bridge.adapters.mock.site import MockCluster
from cpsched_bridge.cycle.loop import Bridge
from cpsched_bridge.cycle.telling import Listener
from cpsched_bridge.errors import AddressTaken
from cpsched_bridge.in_force import InForce
from cpsched_bridge.program.assembly import policy_of
from cpsched_bridge.program.views import span, where
from cpsched_bridge.report import CycleReport
from cpsched_bridge.settings import MetricsSettings, Settings
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.places import journal_path, ledger_path, pause_file
from cpsched_bridge.watch import logs
from cpsched_bridge.watch.endpoint import Endpoint
from cpsched_bridge.watch.web.server import Watch
from cpsched_sim.traces.job import TraceJob

_DRAW_S = 0.1
_LINE_S = 2.0
_SHOWN = 10
_REHEARSED = 150
"""Jobs of the rehearsal: enough for some to wait."""


def run(
    dispatcher: str,
    baselines: Sequence[str],
    jobs: int,
    seconds: float,
    limit_s: float,
    seed: int,
    mornings: int = 1,
) -> int:
    """The demo; the exit code. `limit_s` is for dispatchers that search.

    The comparison is over so many mornings, with the seeds from `seed` on; the first of them is shown live.
    """
    logs.set_up("text", level=40)
    out = Console()
    policies = [_policy(name, limit_s) for name in (dispatcher, *baselines)]
    if not _rehearsed(policies, seed):
        return 130
    cluster, morning = loaded_morning(jobs, seed)
    out.print(f"{len(morning)} jobs of a generated Eurora morning ({cluster.size} nodes), {dispatcher} in control")
    watch = Watch(Settings(mode="control", adapter="mock"))
    endpoint = _endpoint(watch)
    out.print(f"metrics: {endpoint.url}metrics, page: {endpoint.url}", highlight=False)
    try:
        first = _live_run(out, policies[0], cluster, morning, seconds, watch)
        if first is None:
            out.print("stopped; the held jobs went back to the site's own scheduler")
            return 130
        found: list[list[Figures]] = []
        for number in range(seed, seed + mornings):
            out.print(f"comparing with {' and '.join(baselines)}: morning {number - seed + 1} of {mornings} ...")
            _, each = (cluster, morning) if number == seed else loaded_morning(jobs, number)
            runs = [first] if number == seed else []
            for policy in policies[len(runs) :]:
                figures = _quiet_run(policy, cluster, each)
                if figures is None:
                    break
                runs.append(figures)
            if len(runs) < len(policies):
                break
            found.append(runs)
    finally:
        endpoint.close()
    if found:
        out.print(comparison(found))
        for at in range(1, len(policies)):
            for sentence in verdict([(runs[0], runs[at]) for runs in found]):
                out.print(sentence, highlight=False)
    return 0 if len(found) == mornings else 130


def _rehearsed(policies: Sequence[PolicySpec], seed: int) -> bool:
    """Have each policy decide a few times, so that what it needs is compiled before the show; False: it was stopped."""
    cluster, morning = loaded_morning(_REHEARSED, seed)
    return all(_quiet_run(policy, cluster, morning) for policy in policies)


def _policy(dispatcher: str, limit_s: float) -> PolicySpec:
    """The policy of that name, with the limit if it knows one; raises `UnknownName`."""
    limited = "limit_s" in setting_names(DISPATCHERS.find(dispatcher))
    return PolicySpec.of(dispatcher, options={"limit_s": limit_s} if limited else {})


def _endpoint(watch: Watch) -> Endpoint:
    """Metrics and page at the usual port, or at any free one."""
    settings, app = MetricsSettings(), watch.app()
    try:
        return Endpoint(app, settings.host, settings.port)
    except AddressTaken:
        return Endpoint(app, settings.host, 0)


# ------------------------------------------------------------------------------------------------------- the runs


@dataclass(frozen=True, slots=True)
class Figures:
    """What one policy made of the morning; at least one job has ended."""

    name: str
    ended: Sequence[EndedJob]
    decide_s: Sequence[float]
    """Seconds of each decision, reading the snapshot included."""


def _live_run(
    out: Console,
    policy: PolicySpec,
    cluster: Cluster,
    morning: Sequence[TraceJob],
    seconds: float,
    watch: Watch,
) -> Figures | None:
    site = MockCluster(cluster, morning)
    length_s = morning[-1].job.submit_s - morning[0].job.submit_s
    pace = AcceleratedPace(site, speed=max(1.0, length_s / max(seconds, 0.1)), budget_s=seconds)
    board = DemoBoard(policy.dispatcher, len(morning))
    if not out.is_terminal:
        return _bridge_run(policy, site, pace, (watch, board, PlainLines(out, board)))
    with Live(get_renderable=board.picture, console=out, auto_refresh=False, screen=True) as live:
        return _bridge_run(policy, site, pace, (watch, board, Redraw(live)))


def _quiet_run(policy: PolicySpec, cluster: Cluster, morning: Sequence[TraceJob]) -> Figures | None:
    site = MockCluster(cluster, morning)
    return _bridge_run(policy, site, EventPace(site), ())


def _bridge_run(
    policy: PolicySpec, site: MockCluster, pace: EventPace, listeners: tuple[Listener, ...]
) -> Figures | None:
    """One bridge in control of `site` until nothing is left to happen; None if it was stopped before."""
    decide_s: list[float] = []

    def note(report: CycleReport) -> None:
        if "decide" in report.seconds and report.waiting:
            decide_s.append(report.seconds["decide"])

    with tempfile.TemporaryDirectory(prefix="cpsched-demo-") as folder:
        settings = Settings(
            mode="control",
            adapter="mock",
            state_dir=Path(folder),
            durable=False,
        )
        ledger, journal = Ledger(ledger_path(settings), durable=False), Journal(journal_path(settings))
        backend = MockBackend(site, StandingClock(site))
        bridge = Bridge(
            backend, policy_of(policy), InForce(policy), ledger, journal, pause_file(settings), pace, settings,
            (note, pace.note, *listeners),
        )  # fmt: skip
        pace.stop_on_signals()
        try:
            bridge.run()
        finally:
            ledger.close()
            journal.close()
    return None if pace.stopped else Figures(policy.dispatcher, site.ended, decide_s)


# ----------------------------------------------------------------------------------------------- what one sees live


@dataclass(slots=True)
class DemoBoard:
    """The state of the show: fed with reports, drawn when asked."""

    name: str
    jobs: int
    report: CycleReport | None = None
    lines: list[tuple[str, ...]] = field(default_factory=list)
    ended: int = 0
    paths: dict[str, int] = field(default_factory=dict)

    def __call__(self, report: CycleReport) -> None:
        """Take in a cycle."""
        self.report = report
        self.ended += len(report.ended)
        if report.decision is not None:
            path = report.decision.effort.path
            self.paths[path] = self.paths.get(path, 0) + 1
        if report.observation is None:
            return
        jobs = {job.id: job for job in report.waiting}
        for id, placement in report.starts.items():
            job, seen = jobs[id], report.observation
            ask = "/".join(map(str, job.request.per_unit))
            waited = span(seen.now_s - job.submit_s)
            units = f"{job.request.units} x {ask}"
            self.lines.append((span(seen.now_s), str(id), job.user, units, where(placement, seen.cluster), waited))
        del self.lines[:-_SHOWN]

    def picture(self) -> RenderableType:
        """The live view."""
        seen = self.report.observation if self.report is not None else None
        if self.report is None or seen is None:
            return Text("...")
        facts = Table.grid(padding=(0, 2))
        facts.add_row("site clock", span(seen.now_s), "queue", str(len(seen.pending)))
        facts.add_row("rounds", str(self.report.number), "running", str(len(seen.running)))
        facts.add_row("ended", f"{self.ended} of {self.jobs}", "decision", f"{1e3 * self._decide_s():.1f} ms")
        bars = Table.grid(padding=(0, 2))
        for resource, share in self._used():
            bars.add_row(resource, ProgressBar(total=1.0, completed=share, width=40), f"{100 * share:3.0f} %")
        title = Text(f"cpsched bridge, control mode, {self.name} on a simulated Eurora", style="bold")
        return Group(title, facts, bars, self._decisions())

    def _decisions(self) -> Table:
        columns = ("at", "job", "user", "units x cores/MiB/GPUs/MICs", "nodes", "waited")
        found = Table(*columns, title="last starts", title_justify="left", box=None, pad_edge=False)
        for column in found.columns:
            column.no_wrap = True
        for line in reversed(self.lines):
            found.add_row(*line)
        return found

    def _decide_s(self) -> float:
        return self.report.seconds.get("decide", 0.0) if self.report is not None else 0.0

    def _used(self) -> list[tuple[str, float]]:
        if self.report is None or self.report.observation is None:
            return []
        seen = self.report.observation
        free, capacity = seen.free.sum(axis=0), seen.cluster.capacity.sum(axis=0)
        return [(r, 1 - f / c) for r, f, c in zip(seen.cluster.resources, free, capacity, strict=True) if c]

    def line(self) -> str:
        """The same in one line, where there is no terminal."""
        if self.report is None or self.report.observation is None:
            return "..."
        seen = self.report.observation
        used = ", ".join(f"{resource} {100 * share:.0f} %" for resource, share in self._used())
        last = "; ".join(f"job {line[1]} on {line[4]}" for line in self.lines[-2:])
        return (
            f"{span(seen.now_s)} queue {len(seen.pending)}, running {len(seen.running)}, "
            f"ended {self.ended} of {self.jobs}, {used}; last starts: {last or 'none'}"
        )


@dataclass(slots=True)
class Redraw:
    """Draws now and then: the show must not cost more than what it shows."""

    live: Live
    last_s: float = 0.0

    def __call__(self, report: CycleReport) -> None:
        """After a cycle."""
        if time.monotonic() - self.last_s >= _DRAW_S:
            self.live.refresh()
            self.last_s = time.monotonic()


@dataclass(slots=True)
class PlainLines:
    """A line now and then."""

    out: Console
    board: DemoBoard
    last_s: float = 0.0

    def __call__(self, report: CycleReport) -> None:
        """After a cycle."""
        if time.monotonic() - self.last_s >= _LINE_S:
            self.out.print(self.board.line(), highlight=False, soft_wrap=True)
            self.last_s = time.monotonic()


# --------------------------------------------------------------------------------------------------- the comparison


def comparison(mornings: Sequence[Sequence[Figures]]) -> Table:
    """Wait, slowdown and decision times of all policies side by side, all mornings taken together."""
    runs = [_together(list(each)) for each in zip(*mornings, strict=True)]
    title = f"the same jobs, the same bridge, {len(mornings)} morning{'s' * (len(mornings) > 1)}"
    found = Table("", *(figures.name for figures in runs), title=title, title_justify="left")
    columns = [_cells(figures) for figures in runs]
    for name in columns[0]:
        found.add_row(name, *(column[name] for column in columns))
    for column in found.columns[1:]:
        column.justify = "right"
    return found


def _together(runs: Sequence[Figures]) -> Figures:
    """What one policy made of several mornings."""
    ended = [job for figures in runs for job in figures.ended]
    return Figures(runs[0].name, ended, [second for figures in runs for second in figures.decide_s])


def verdict(pairs: Sequence[tuple[Figures, Figures]]) -> list[str]:
    """A sentence each for wait and slowdown: how many mornings each policy did better in, and by how much in all."""
    sentences = []
    for what, column in (("mean wait", "wait_s"), ("mean slowdown", "bounded_slowdown")):
        means = [tuple(float(getattr(Measures.of(f.ended), column).mean()) for f in pair) for pair in pairs]
        ours, theirs = (sum(mean[side] for mean in means) / len(means) for side in (0, 1))
        wins = sum(mean[0] < mean[1] for mean in means), sum(mean[1] < mean[0] for mean in means)
        change = f"{100 * (ours - theirs) / theirs:+.0f} %" if theirs else f"{ours:.0f} against 0"
        names = pairs[0][0].name, pairs[0][1].name
        sentences.append(
            f"{what} of {names[0]} beside {names[1]}: {change}; "
            f"better in {wins[0]}, worse in {wins[1]} of {len(pairs)} mornings"
        )
    return sentences


def _cells(figures: Figures) -> dict[str, str]:
    measures = Measures.of(figures.ended)
    waits_s, slowdowns = measures.wait_s, measures.bounded_slowdown
    decide_ms = 1e3 * np.array(figures.decide_s or [0.0])
    return {
        "jobs": f"{len(figures.ended):,}",
        "wait, mean": f"{waits_s.mean():,.0f} s",
        "wait, 95th percentile": f"{np.percentile(waits_s, 95):,.0f} s",
        "bounded slowdown, mean": f"{slowdowns.mean():,.2f}",
        "bounded slowdown, 95th percentile": f"{np.percentile(slowdowns, 95):,.2f}",
        "decisions": f"{len(decide_ms):,}",
        "decision time, mean": f"{decide_ms.mean():,.2f} ms",
        "decision time, 95th percentile": f"{np.percentile(decide_ms, 95):,.2f} ms",
        "decision time, longest": f"{decide_ms.max():,.1f} ms",
    }
