"""`python -m tests.monitoring.figures`: series and scrape time with a long queue, load and update time of a large page.

A bridge in shadow mode over a made-up cluster, served as always; times are those of another process that asks. Beside
them stands the least CPU time that the process of the bridge took, which other work on the machine lengthens less.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.fit import used_by
from cpsched.model import Cluster, EndedJob, Job, Request, RunningJob
from cpsched_bridge.ports import Hold, Observation, PendingJob
from cpsched_bridge.settings import Settings
from cpsched_bridge.watch.endpoint import Endpoint
from cpsched_bridge.watch.web.server import Watch
from tests.bridges import a_bridge
from tests.monitoring.browser import chromium, lacks

_ASK = """
import sys, time, urllib.request
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    urllib.request.urlopen(sys.argv[1]).read()
    print(time.perf_counter() - began)
    time.sleep(0.05)
"""


_ROUND = "return document.getElementById('round').textContent"


class Crowd:
    """A cluster with so many jobs running and waiting; from reading to reading some end, and some begin."""

    def __init__(self, nodes: int, running: int, queued: int, partitions: int) -> None:
        random = np.random.default_rng(1)
        self.cluster = Cluster.of(np.full((nodes, 2), [32, 256]), ["cores", "memory_gib"])
        self.now_s, self._told = 100_000, 0
        self._free = self.cluster.capacity.copy()
        self._running: list[RunningJob] = []
        names = [f"partition{n:02d}" for n in range(partitions)]

        def job(id: int, units: int, cores: int) -> Job:
            walltime_s = int(random.integers(600, 86400))
            request = Request(units, (cores, int(random.integers(1, 64))))
            submit_s = self.now_s - int(random.integers(1, 80000))
            return Job(
                id, submit_s, walltime_s, request, user=f"u{id % 97}", name=f"job-{id}", queue=names[id % partitions]
            )

        for id in range(1, running + 1):
            node = id % nodes
            each = job(id, 1, int(random.integers(1, 6)))
            if (self._free[node] >= each.request.per_unit).all():
                self._free[node] -= each.request.per_unit
                self._running.append(RunningJob(each, self.now_s - int(random.integers(0, 3000)), ((node, 1),)))
        self._queue = [job(100_000 + id, int(random.integers(1, 40)), 32) for id in range(queued)]

    def observe(self, pinned: object = ()) -> Observation:
        """Thirty seconds later: five jobs have ended."""
        self.now_s += 30
        gone, self._running = self._running[:5], self._running[5:]
        for each in gone:
            for node, amounts in used_by(each.job.request, each.placement, self.cluster.capacity).items():
                self._free[node] += amounts
        ended = tuple(EndedJob(each.job, each.start_s, self.now_s) for each in gone)
        pending = tuple(PendingJob(each, Hold.PLUGIN) for each in self._queue)
        return Observation(self.now_s, self.cluster, self._free.copy(), pending, tuple(self._running), ended)

    def history(self) -> list[EndedJob]:
        """Nothing before."""
        return []


def milliseconds(seconds: list[float]) -> str:
    """Median and longest."""
    return f"median {1e3 * float(np.median(seconds)):.1f} ms, longest {1e3 * max(seconds):.1f} ms of {len(seconds)}"


def asked(url: str, times: int) -> tuple[list[float], float]:
    """Seconds of so many requests, from another process; the milliseconds of CPU that each costs this one."""
    words = [sys.executable, "-c", _ASK, url, str(times)]
    cpu_s = time.process_time()
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [float(line) for line in out.split()], 1e3 * (time.process_time() - cpu_s) / times


def told(runs: list[tuple[list[float], float]]) -> str:
    """Median and longest of all that was asked in several runs, and the least CPU time of a run."""
    return f"{milliseconds([each for run, _ in runs for each in run])}; {min(cpu_ms for _, cpu_ms in runs):.1f} ms CPU"


def least_cpu_ms(work: Callable[[], object], times: int) -> float:
    """The least CPU time that some work takes, of so many times."""
    found = []
    for _ in range(times):
        cpu_s = time.process_time()
        work()
        found.append(time.process_time() - cpu_s)
    return 1e3 * min(found)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        scrape(Path(folder) / "a")
        page(Path(folder) / "b")


def _bridge(folder: Path, crowd: Crowd) -> tuple[object, Watch]:
    folder.mkdir()
    watch = Watch(Settings())
    return a_bridge(folder, crowd, EasyDispatcher(), listeners=(watch,), mode="shadow"), watch


def scrape(folder: Path) -> None:
    """10,000 queued jobs in 20 partitions, cycles without a pause."""
    bridge, watch = _bridge(folder, Crowd(1000, 3000, 10_000, 20))
    endpoint = Endpoint(watch.app(), "127.0.0.1", 0)
    bridge.cycle()
    cycles: list[float] = []
    asking = subprocess.Popen([sys.executable, "-c", _ASK, endpoint.url + "metrics", "100"], stdout=subprocess.PIPE)
    while asking.poll() is None:
        began_s = time.perf_counter()
        bridge.cycle()
        cycles.append(time.perf_counter() - began_s)
    busy = [float(line) for line in asking.communicate()[0].split()]
    idle = [asked(endpoint.url + "metrics", 10) for _ in range(5)]
    text = urllib.request.urlopen(endpoint.url + "metrics").read().decode()
    series = [line for line in text.splitlines() if line and not line.startswith("#")]
    print(f"scrape, 10,000 queued jobs, 20 partitions: {len(series)} series, {len(text):,} bytes")
    print(f"  while the loop rests: {told(idle)}")
    print(f"  while the loop cycles without a pause ({milliseconds(cycles)}): {milliseconds(busy)}")
    print(f"  to write the text: {least_cpu_ms(watch.exporter.text, 20):.1f} ms CPU")
    _listening(watch, bridge)
    endpoint.close()


def _listening(watch: Watch, bridge: object) -> None:
    """What the watch costs the loop in each cycle."""
    report = bridge.cycle()  # type: ignore[attr-defined]
    print(f"  the watch costs the loop {least_cpu_ms(lambda: watch(report), 20):.1f} ms CPU a cycle")


def page(folder: Path) -> None:
    """1,000 nodes, 5,000 jobs."""
    bridge, watch = _bridge(folder, Crowd(1000, 2500, 2500, 8))
    endpoint = Endpoint(watch.app(), "127.0.0.1", 0)
    asked(endpoint.url, 1)
    first = []
    for _ in range(10):
        bridge.cycle()
        first.append(asked(endpoint.url, 1))
    again = [asked(endpoint.url, 5) for _ in range(4)]
    size = len(urllib.request.urlopen(endpoint.url).read())
    view = watch.board.view()
    print(f"page, 1,000 nodes, {view.status.running + view.status.queued:,} jobs: {size:,} bytes")
    print(f"  from the bridge, first in a round: {told(first)}")
    print(f"  from the bridge, then: {told(again)}")
    if not lacks():
        _in_a_browser(endpoint.url, bridge)
    endpoint.close()


def _in_a_browser(url: str, bridge: object) -> None:
    with chromium() as driver:
        loads, updates = [], []
        for _ in range(5):
            driver.get(url)
            timing = driver.execute_script("return performance.getEntriesByType('navigation')[0].toJSON()")
            loads.append(timing["loadEventEnd"] / 1e3)
        driver.execute_script(
            "window.tasks=[]; new PerformanceObserver(l=>l.getEntries().forEach(e=>window.tasks.push(e.duration)))"
            ".observe({entryTypes:['longtask']});"
        )
        for _ in range(6):
            before = driver.execute_script(_ROUND)
            bridge.cycle()  # type: ignore[attr-defined]
            began_s = time.perf_counter()
            while driver.execute_script(_ROUND) == before and time.perf_counter() - began_s < 15:
                time.sleep(0.01)
            entry = driver.execute_script(
                "const e=performance.getEntriesByType('resource').filter(e=>e.name.includes('part=live'));"
                "return e[e.length-1].toJSON()"
            )
            updates.append(entry["duration"] / 1e3)
        longest = [each / 1e3 for each in driver.execute_script("return window.tasks")] or [0.0]
        elements = driver.execute_script("return document.querySelectorAll('*').length")
    print(f"  in Chromium: load {milliseconds(loads)}; {elements:,} elements")
    print(f"  an update, asked and answered: {milliseconds(updates)}; the page busy with it: {milliseconds(longest)}")


if __name__ == "__main__":
    main()
