"""Show a bridge that controls a simulated Eurora, next to a twin of Slurm.

The bridge runs one cycle per event at its site, so it never waits for a poll. The twin has the same jobs and clock.
`cpsched demo` ends after a fixed time, not after the last job.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched.formatting import format_count, format_duration, format_percent
from cpsched.model import Cluster
from cpsched.policy_spec import PolicySpec, setting_names
from cpsched.registry import DISPATCHERS
from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.adapters.mock.simulated_clocks import EventDrivenClock
from cpsched_bridge.cycle.bridge_loop import Bridge, BridgeComponents
from cpsched_bridge.cycle.cycle_reporting import Listener
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.effective_config import EffectiveConfig
from cpsched_bridge.errors import AddressInUse
from cpsched_bridge.program.bootstrap import make_policy
from cpsched_bridge.program.terminal_views import format_placement
from cpsched_bridge.settings import MetricsSettings, Settings
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.lock_and_request_files import PauseFile
from cpsched_bridge.store.state_paths import journal_path, state_path
from cpsched_bridge.telemetry import bridge_log
from cpsched_bridge.web.http_server import HttpServer
from cpsched_bridge.web.status_application import StatusApplication
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.eurora_generator import JOBS_PER_DAY, generate_eurora_jobs

DRAW_EVERY_S = 0.1
PRINT_EVERY_S = 2.0
REHEARSAL_JOBS = 150
"""Number of jobs in the rehearsal, which is large enough that some jobs wait."""
CLOSED_DURATION_S = 3600
MORNING_S = 5 * 3600
"""Approximate time in seconds from the opening to the last arrival."""
MORNING_DAYS = 0.25
MAX_RUN_TIME_S = 9000
"""Maximum run time of a generated job in seconds. Longer jobs would overload the machine."""
_EXTRA_JOBS_FACTOR = 1.1
"""Factor for the number of generated jobs, because long jobs are dropped."""
HEADER_LINES = 10
"""Number of lines above the starts in the live view, including the heading of the list."""
START_COLUMNS = {"at": 11, "job": 7, "user": 8, "cores": 5, "nodes": 0, "waited": 11}
"""Widths of the columns in the list of starts. `nodes` gets the rest of the line."""
WAIT_CHARS = 12
TWIN = "Slurm's twin"
NEXT_STEPS = """Try next:
  {0} workload eurora --days 1 --load 3 --seed 1 --out day.csv.gz
  {0} compare day.csv.gz --dispatcher slurm,easy,lookahead
On a host with Slurm's commands, collect your own weeks to replay:
  {0} whatif collect --out site"""


def run_demo(dispatcher: str, jobs: int, seconds: float, limit_s: float, seed: int) -> int:
    """Show a busy morning for `seconds` and return the exit code.

    `limit_s` applies to dispatchers that search.
    """
    bridge_log.configure_logging("text", level=40)
    out = Console()
    policy = make_demo_policy(dispatcher, limit_s)
    watch = StatusApplication(Settings(mode="control", adapter="mock"))
    endpoint = _make_http_server(watch)
    try:
        out.print(f"page: {endpoint.url}, metrics: {endpoint.url}metrics", highlight=False)
        if not _warm_up_kernels_with_demo(policy, seed):
            out.print("stopped before the live view")
            return 130
        site, twin = make_bridge_and_twin_sites(jobs, seed)
        out.print(f"{format_count(jobs, 'job')} of a generated Eurora morning, {dispatcher} in control")
        pace = EventDrivenClock(site, speed=max(1.0, MORNING_S / max(seconds, 0.1)), budget_s=seconds)
        view = DemoLiveView(dispatcher, site, twin, endpoint.url)
        if sys.stdout.isatty() and out.is_terminal and not out.is_dumb_terminal:
            with Live(
                get_renderable=lambda: view.render(out.size), console=out, auto_refresh=False, screen=True
            ) as live:
                ended = run_demo_bridge(
                    policy, site, pace, (watch, view, ThrottledCycleCallback(live.refresh, DRAW_EVERY_S))
                )
        else:
            lines = ThrottledCycleCallback(
                lambda: out.print(view.render_line(), highlight=False, soft_wrap=True), PRINT_EVERY_S
            )
            ended = run_demo_bridge(policy, site, pace, (watch, view, lines))
    finally:
        endpoint.close()
    if not ended:
        out.print("stopped; the held jobs were released to the site's own scheduler")
        return 130
    twin.advance(site.now_s)
    out.print(
        summarize_result(dispatcher, compute_waits_s(site), compute_waits_s(twin)),
        highlight=False,
        soft_wrap=True,
    )
    out.print(NEXT_STEPS.format(find_program_command()), highlight=False, soft_wrap=True)
    return 0


def find_program_command() -> str:
    """Return the command that runs this program.

    It is `cpsched`, or the program's path if the shell does not find `cpsched`.
    """
    called = sys.argv[0]
    return called if Path(called).name == "cpsched" and not shutil.which("cpsched") else "cpsched"


def compute_waits_s(site: MockCluster) -> list[int]:
    """Return the waits in seconds of all jobs that have arrived.

    A pending job's wait is its wait so far.
    """
    seen = site.observe()
    waits = [each.start_s - each.job.submit_s for each in seen.ended]
    waits += [each.start_s - each.job.submit_s for each in seen.running]
    return waits + [seen.now_s - each.job.submit_s for each in seen.pending]


def compute_mean_wait_s(waits: list[int]) -> int:
    """Return the mean in whole seconds, or 0 for an empty list."""
    return round(sum(waits) / max(1, len(waits)))


def summarize_result(dispatcher: str, ours: list[int], twins: list[int]) -> str:
    """Return a sentence with both mean waits in seconds.

    State their difference in percent if it is at least 1 %.
    """
    ours_s, twin_s = compute_mean_wait_s(ours), compute_mean_wait_s(twins)
    share = 100 * (ours_s - twin_s) / twin_s if twin_s else 0.0
    text = f"{abs(share):.0f} % {'shorter' if share < 0 else 'longer'}" if abs(share) >= 1 else "no difference"
    seen = f"Mean wait so far of {format_count(len(ours), 'job')}"
    return f"{seen}: {ours_s:,} s under {dispatcher}, {twin_s:,} s under {TWIN}: {text}."


def _warm_up_kernels_with_demo(policy: PolicySpec, seed: int) -> bool:
    """Run a short demo on both sites, which compiles the kernels.

    Return False if the user stopped it.
    """
    site, twin = make_bridge_and_twin_sites(REHEARSAL_JOBS, seed)
    if not run_demo_bridge(policy, site, EventDrivenClock(site), ()):
        return False
    twin.advance(site.now_s)
    return True


def make_bridge_and_twin_sites(jobs: int, seed: int) -> tuple[MockCluster, MockCluster]:
    """Return two sites with the same jobs: for the bridge, and for Slurm's twin.

    As after maintenance, jobs that arrive in the first `CLOSED_DURATION_S` seconds wait until the sites open, which
    creates a queue.
    """
    cluster, morning = generate_morning_jobs(jobs, seed)
    opens_s = morning[0].job.submit_s + CLOSED_DURATION_S
    late = [replace(item, job=replace(item.job, submit_s=max(item.job.submit_s, opens_s))) for item in morning]
    site = MockCluster(cluster, late, scheduler=SlurmTwinDispatcher())
    site.advance(opens_s)
    return site, MockCluster(cluster, late, plugin=False, scheduler=SlurmTwinDispatcher())


def make_demo_policy(dispatcher: str, limit_s: float) -> PolicySpec:
    """Return a dispatcher's policy, with a time limit if supported.

    Raise `UnknownName`.
    """
    limited = "limit_s" in setting_names(DISPATCHERS.find(dispatcher))
    return PolicySpec.of(dispatcher, settings={"limit_s": limit_s} if limited else {})


def _make_http_server(watch: StatusApplication) -> HttpServer:
    """Return a server for the metrics and the page.

    Use the default port or, if it is in use, any free port.
    """
    settings, app = MetricsSettings(), watch.build_app()
    try:
        return HttpServer(app, settings.host, settings.port)
    except AddressInUse:
        return HttpServer(app, settings.host, 0)


def run_demo_bridge(
    policy: PolicySpec, site: MockCluster, pace: EventDrivenClock, listeners: tuple[Listener, ...]
) -> bool:
    """Run a bridge in control of `site` until its clock stops.

    Return False if a signal ended the run.
    """
    with tempfile.TemporaryDirectory(prefix="cpsched-demo-") as folder:
        settings = Settings(mode="control", adapter="mock", state_dir=Path(folder), durable=False)
        ledger, journal = Ledger(state_path(settings), durable=False), Journal(journal_path(settings))
        parts = BridgeComponents(
            MockBackend(site), make_policy(policy), EffectiveConfig(policy), ledger, journal,
            PauseFile(settings.state_dir), pace, settings, (pace.on_cycle, *listeners),
        )  # fmt: skip
        try:
            with pace.stop_on_signals():
                Bridge(parts).run()
        finally:
            ledger.close()
            journal.close()
    return not pace.is_stopped


@dataclass(slots=True)
class DemoLiveView:
    """A live view of the bridge's cycles, which also advances the twin's site."""

    name: str
    site: MockCluster
    twin: MockCluster
    url: str
    report: CycleReport | None = None
    starts: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, report: CycleReport) -> None:
        """Record a cycle and its starts, and advance the twin to the same second."""
        self.report = report
        seen = report.observation
        if seen is None:
            return
        self.twin.advance(seen.now_s)
        jobs = {job.id: job for job in report.decided.waiting}
        for job_id, placement in report.decided.starts.items():
            job = jobs[job_id]
            cores = str(job.request.units * job.request.per_unit[0])
            row = (format_duration(seen.now_s), str(job_id), job.user, cores, format_placement(placement, seen.cluster))
            self.starts.append((*row, format_duration(seen.now_s - job.submit_s)))
        del self.starts[:-100]

    def render(self, size: tuple[int, int]) -> RenderableType:
        """Return the view for a terminal with this size (columns, lines)."""
        if self.report is None:
            return Text("...")
        columns, lines = size
        title = Text(f"cpsched in control of a simulated Eurora: {self.url}", style="bold")
        at = Text(
            f"{format_duration(self.site.now_s)} simulated, {format_count(self.report.number, 'cycle')}", style="dim"
        )
        waits = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        waits.add_column("")
        for name in (self.name, TWIN):
            waits.add_column(name, justify="right", min_width=WAIT_CHARS)
        for row in self._compare_sites():
            waits.add_row(*row)
        last = Table(title="last starts", title_justify="left", box=None, padding=(0, 1, 0, 0))
        rest = columns - sum(START_COLUMNS.values()) - len(START_COLUMNS)
        for name, width in START_COLUMNS.items():
            last.add_column(name, no_wrap=True, width=width or max(8, rest))
        for start in reversed(self.starts[-max(1, lines - HEADER_LINES) :]):
            last.add_row(*start)
        return Group(title, at, waits, last)

    def _compare_sites(self) -> list[tuple[str, str, str]]:
        sites = [(each.observe(len(each.ended)), each) for each in (self.site, self.twin)]
        seen = sites[0][0]
        cores = int(seen.cluster.capacity[:, 0].sum())
        rows: dict[str, Callable[[int], str]] = {
            "mean wait so far": lambda at: format_duration(compute_mean_wait_s(compute_waits_s(sites[at][1]))),
            "waiting": lambda at: str(len(sites[at][0].pending)),
            "running": lambda at: str(len(sites[at][0].running)),
            "ended": lambda at: str(len(sites[at][1].ended)),
            "cores in use": lambda at: format_percent(1 - int(sites[at][0].free[:, 0].sum()) / cores),
        }
        return [(name, cell(0), cell(1)) for name, cell in rows.items()]

    def render_line(self) -> str:
        """Return the view as one line, for output that is not a terminal."""
        return "; ".join(f"{name} {ours} ({TWIN}: {theirs})" for name, ours, theirs in self._compare_sites())


@dataclass(slots=True)
class ThrottledCycleCallback:
    """A callback that calls `act` after a cycle, at most every `every_s` seconds."""

    act: Callable[[], object]
    every_s: float
    last_s: float = 0.0

    def __call__(self, report: CycleReport) -> None:
        """Call `act` unless the last call was less than `every_s` seconds ago."""
        if time.monotonic() - self.last_s >= self.every_s:
            self.act()
            self.last_s = time.monotonic()


def generate_morning_jobs(jobs: int, seed: int) -> tuple[Cluster, list[TraceJob]]:
    """Return Eurora's cluster and `jobs` synthetic jobs without long jobs."""
    load = jobs * _EXTRA_JOBS_FACTOR / (JOBS_PER_DAY * MORNING_DAYS)
    generated = generate_eurora_jobs(MORNING_DAYS, seed, load)
    return System(load_system("eurora")).cluster, [job for job in generated if job.run_s <= MAX_RUN_TIME_S][:jobs]
