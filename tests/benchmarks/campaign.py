"""One study by three ways: on two Dask workers, killed half way and resumed; in two processes; by `compare` in a loop.

`CPSCHED_TRACES=FOLDER python -m tests.benchmarks.campaign OUT` runs `campaign.yaml` beside this module into the new
folder OUT (extra `dask`), prints wall and CPU time of each way, and whether all ways have the same results. Names of
ways behind OUT run these alone: dask, processes, compare.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cpsched_sim.files import check_folder
from cpsched_sim.study.campaign import Campaign, found_file, read_campaign
from cpsched_sim.study.store import Store

FILE = Path(__file__).with_suffix(".yaml")
CPSCHED = Path(sys.executable).parent / "cpsched"
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux's prctl(2): what a command leaves behind becomes a child of this process."""


def timed(name: str, work: Callable[[], object]) -> None:
    """Print what some work took, with all processes that it began."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    told = work()
    took_s = time.monotonic() - began_s
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name}: {told}; {took_s:.0f} s, CPU {cpu_s:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """The file of a Dask scheduler with two workers; all of them end with the block."""
    file, processes = folder / "scheduler.json", []
    for words in (["dask_scheduler", "--port", "0"], *[["dask_worker", "--no-nanny", "--nthreads", "1"]] * 2):
        module, *options = words
        command = [sys.executable, "-m", f"distributed.cli.{module}", *options, "--no-dashboard"]
        processes.append(subprocess.Popen([*command, "--scheduler-file", str(file)], cwd=folder, **QUIET))
    try:
        yield file
    finally:
        for process in processes[::-1]:
            process.terminate()
            process.wait()


def killed_and_resumed(out: Path, campaign: Campaign) -> str:
    """Run the study on Dask, kill the command when half of the cases are there, and give the same command again."""
    cases, half = out / "dask" / "cases", len(campaign.distinct) // 2
    with cluster(out) as scheduler:
        command = [CPSCHED, "study", FILE, "--out", out / "dask", "--on", scheduler]
        with subprocess.Popen(command, **QUIET) as process:
            while process.poll() is None and len(list(cases.glob("*.json"))) < half:
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
        left = len(Store(out / "dask").before(campaign).done)
        subprocess.run(command, check=True, **QUIET)
    return f"killed by signal {-process.returncode} after {left} of {len(campaign.distinct)} replays, then resumed"


def in_processes(out: Path, _: Campaign) -> str:
    """Run the study in two processes of this machine."""
    subprocess.run([CPSCHED, "study", FILE, "--out", out / "processes"], check=True, **QUIET)
    return "run in one go"


def compared(out: Path, campaign: Campaign) -> str:
    """What somebody without studies does: workloads made up into files, then `compare` for each trace and seed."""
    folder, words = out / "compare", campaign.words
    folder.mkdir()
    (grid,) = words.grids
    for name in grid.traces:
        trace = words.traces[name]
        for seed in grid.seeds:
            path, options = found_file(trace.file or "", FILE.parent), [f"--max-jobs={trace.max_jobs}"]
            if trace.generate is not None:
                path, options = folder / f"{name}-{seed}.csv.gz", []
                sizes = {"days": trace.days, "jobs": trace.max_jobs, "processors": trace.processors, "load": trace.load}
                asked = [f"--{size}={value}" for size, value in sizes.items() if value is not None]
                command = [CPSCHED, "workload", trace.generate, "--out", path, *asked, f"--seed={seed}"]
                subprocess.run(command, check=True, **QUIET)
            command = [CPSCHED, "compare", path, "--dispatchers", ",".join(grid.dispatchers), f"--seed={seed}"]
            command += ["--predictors", ",".join(grid.predictors), "--json", *options]
            command += ["--lenient"] if trace.lenient else []
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            (folder / f"{name}-{seed}.json").write_bytes(done.stdout)
    return f"{len(grid.traces) * len(grid.seeds)} commands, {len(campaign.cases)} replays"


def differences(out: Path, campaign: Campaign) -> tuple[int, int]:
    """Files of cases that are not the same bytes on Dask and in processes; figures that `compare` has otherwise."""
    one, other = (
        {path.name: path.read_bytes() for path in (out / way / "cases").iterdir()} for way in ("dask", "processes")
    )
    files = sum(one.get(name) != other.get(name) for name in {*one, *other})
    store, figures = Store(out / "processes"), 0
    for case in campaign.cases:
        kept = store.find(case.digest)
        theirs = _row(out / "compare" / f"{case.labels['trace']}-{case.labels['seed']}.json", case.labels)
        mine: dict[str, Any] = dict(kept.result["figures"]) if kept is not None else {}
        del mine["longest_wait_s"]
        figures += sum(theirs.get(name) != value for name, value in mine.items())
    return files, figures


def _row(path: Path, labels: Any) -> dict[str, Any]:
    """The summary that `compare` has of a case."""
    rows = json.loads(path.read_bytes())["results"]
    wanted = [row for row in rows if all(row[axis] == labels[axis] for axis in ("dispatcher", "predictor"))]
    found: dict[str, Any] = wanted[0]["summary"]
    return found


WAYS = {"dask": killed_and_resumed, "processes": in_processes, "compare": compared}


def main(words: list[str]) -> None:
    """Run all ways, or those that are named."""
    out, ways = Path(words[0]).absolute(), words[1:] or list(WAYS)
    check_folder(out)
    out.mkdir(parents=True)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    campaign = read_campaign(FILE)
    print(f"{len(campaign.cases)} cases, {len(campaign.distinct)} different replays", flush=True)
    for name in ways:
        timed(name, lambda way=WAYS[name]: way(out, campaign))  # type: ignore[misc]
    if set(ways) == set(WAYS):
        files, figures = differences(out, campaign)
        print(f"{files} files of cases differ between dask and processes; {figures} figures differ from compare's")


if __name__ == "__main__":
    main(sys.argv[1:])
