"""Run a bridge in control of an accelerated simulated site, and print memory, files, ledger and journal sizes.

    python -m tests.soak [--hours H] [--jobs N] [--queue N] [--step S] [--child]

The site is a separate process, so that its memory is not counted. Its time advances with each reading: the longer the
step, the more jobs per cycle. Jobs are generated to keep the queue at a constant length; one in twenty is cancelled.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.model import EndedJob
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.last_two import LastTwoPredictor
from cpsched_bridge.cycle.isolated_dispatcher import IsolatedDispatcher
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.ports import Observation
from tests.bridges import Metrics, a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.remote_site import RemoteBackend, serve

NODES, CORES = 64, 16
USERS = 40
REMEMBERED = 20_000
"""Number of ended jobs that the site remembers, like a cluster that forgets them."""
LINES = 24
WIDTHS = {
    "real h": 7, "simulated h": 11, "ended jobs": 10, "cycles": 8, "bridge MiB": 10, "child MiB": 9, "files": 5,
    "ledger MiB": 10, "journal MiB": 11, "ms CPU a cycle": 14, "ms CPU of a fixed sum": 21,
}  # fmt: skip
"""The columns with their widths. The fixed sum shows the speed of the machine, on which all CPU times depend."""
Line = Mapping[str, float]
"""The state of a run at one time, by column."""


class Stream:
    """A simulated cluster with a queue of constant length, behind the calls of `remote_site`."""

    def __init__(self, queue: int, step_s: int) -> None:
        self._site = FakeCluster(cluster=a_cluster(NODES, CORES))
        self._queue, self._step_s, self._rng = queue, step_s, random.Random(1)
        self._ended: deque[EndedJob] = deque(maxlen=REMEMBERED)
        self._ended_count = self._submitted = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def _submit(self) -> None:
        rng = self._rng
        self._submitted += 1
        walltime_s = rng.choice((600, 1800, 3600, 7200))
        units, per_unit = rng.choice((1, 1, 1, 2, 4)), rng.choice((1, 2, 4, 8, 16))
        facts = {"user": f"user{rng.randrange(USERS)}", "name": f"job{rng.randrange(500)}"}
        job = a_job(self._submitted, units, per_unit, walltime_s, self._site.now_s, **facts)
        self._site.submit(job, run_s=rng.randrange(1, walltime_s + 1))

    def read(self, since: int) -> Observation:
        site, rng = self._site, self._rng
        site.now_s += self._step_s
        running = [fake for fake in site.jobs.values() if fake.running]
        over = [f for f in running if site.now_s - (f.start_s or 0) >= (f.run_s or 0)]
        for fake in over:
            self._ended.append(EndedJob(fake.job, fake.start_s or 0, (fake.start_s or 0) + (fake.run_s or 0)))
            self._ended_count += 1
            site.cancel(fake.job.id)
        pending = [id for id, fake in site.jobs.items() if fake.pending]
        for _ in range(self._queue - len(pending)):
            self._submit()
        if pending and rng.random() < 0.05 * len(over):
            site.cancel(rng.choice(pending))
        site.commands.clear()
        news = min(len(self._ended), self._ended_count - since)
        return replace(site.read(), ended=tuple(self._ended)[len(self._ended) - news :])

    def read_history(self) -> Sequence[EndedJob]:
        return tuple(self._ended)


def resident_mib(pid: int | str = "self") -> float:
    """Return the memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def fixed_sum_ms() -> float:
    """Return the CPU time of a fixed amount of work."""
    began_s = time.process_time()
    sum(i * i for i in range(300_000))
    return 1e3 * (time.process_time() - began_s)


def size_mib(folder: Path, name: str) -> float:
    """Return the size of a database with its log."""
    return sum(file.stat().st_size for file in folder.glob(f"{name}.sqlite*")) / 2**20


def main() -> int:
    """Run, and print a line per 1/24 of the run."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0, help="maximum hours of real time")
    parser.add_argument("--jobs", type=int, default=10**9, help="maximum number of ended jobs")
    parser.add_argument("--queue", type=int, default=200, help="length of the queue")
    parser.add_argument("--step", type=int, default=120, help="simulated seconds from one reading to the next")
    parser.add_argument("--child", action="store_true", help="the dispatcher in a process of its own")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory() as name:
        return soak(given, Path(name))


def soak(given: argparse.Namespace, folder: Path) -> int:
    """Run in a folder."""
    socket = folder / "site.sock"
    stream = Stream(given.queue, given.step)
    site = multiprocessing.get_context("fork").Process(target=serve, args=(stream, socket), daemon=True)
    site.start()
    while not socket.exists():
        time.sleep(0.01)
    apart = IsolatedDispatcher(PolicySpec("easy")) if given.child else None
    policy = Policy(LastTwoPredictor(), apart or EasyDispatcher())
    backend = RemoteBackend(socket, deadline_s=60.0)
    bridge = a_bridge(
        folder, backend, policy=policy, pace=LoopClock(), listeners=(Metrics(),),
        journal={"max_mib": 64, "keep_jobs_days": 1}, cycle={"checks_every_s": 0},
    )  # fmt: skip
    print(" ".join(f"{name:>{width}}" for name, width in WIDTHS.items()))
    began_s, since_s, cycles, ended, lines = time.monotonic(), time.process_time(), 0, 0, list[Line]()
    told_at, step = 0, max(1, min(given.jobs, 10**6) // LINES)
    try:
        while True:
            report = bridge.cycle()
            assert report.result == "ok", report.bridge_events
            assert report.observation is not None
            cycles += 1
            ended += len(report.changes.ended)
            hours = (time.monotonic() - began_s) / 3600
            done = hours >= given.hours or ended >= given.jobs
            if ended >= told_at + step or hours >= given.hours * (len(lines) + 1) / LINES or done:
                told_at, before = ended, lines[-1]["cycles"] if lines else 0
                cpu_ms = 1e3 * (time.process_time() - since_s) / max(1, cycles - before)
                line = {
                    "real h": hours,
                    "simulated h": report.observation.now_s / 3600,
                    "ended jobs": ended,
                    "cycles": cycles,
                    "bridge MiB": resident_mib(),
                    "child MiB": resident_mib(apart.pid) if apart and apart.pid else 0.0,
                    "files": len(os.listdir("/proc/self/fd")),
                    "ledger MiB": size_mib(folder, "state"),
                    "journal MiB": size_mib(folder, "journal"),
                    "ms CPU a cycle": cpu_ms,
                    "ms CPU of a fixed sum": fixed_sum_ms(),
                }
                lines.append(line)
                print(" ".join(f"{round(line[name], 2):>{width}}" for name, width in WIDTHS.items()), flush=True)
                since_s = time.process_time()
            if done:
                break
    finally:
        backend.close()
        site.kill()
        site.join()
        if apart is not None:
            apart.close()
    for sentence in growth(lines):
        print(sentence)
    return 0


def growth(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the growth of each column per real and simulated hour, over the second half of the run."""
    first, last = lines[len(lines) // 2], lines[-1]
    hours, simulated = (last[name] - first[name] for name in ("real h", "simulated h"))
    if not (hours > 0 and simulated > 0):
        return
    yield f"growth over the second half, {last['ended jobs'] - first['ended jobs']} jobs:"
    for name, width in list(WIDTHS.items())[4:]:
        grown = last[name] - first[name]
        yield f"{name:>{width}}: {grown:+9.2f}, {grown / hours:+9.2f} a real h, {grown / simulated:+9.4f} a simulated h"


if __name__ == "__main__":
    sys.exit(main())
