"""Cold and warm starts: CPU seconds of a few commands without compiled kernels, and of the next run.

`python -m tests.benchmarks.cold`. Each command runs twice in its own install: a copy of the packages without caches and
an empty home directory. Targets: all kernels cold in 35 CPU seconds, EASY on a pool in 12, and a warm listing in 0.4 s.
At the end it checks that no other command compiles anything after `warm-up`.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

COMMANDS: tuple[tuple[str, list[str], float | None, float | None], ...] = (
    ("list the dispatchers", ["dispatchers"], None, 0.4),
    ("EASY on a pool", ["simulate", "pool.swf", "--dispatcher", "easy"], 12, None),
    ("EASY on nodes", ["simulate", "pool.swf", "--dispatcher", "easy", "--system", "eurora"], None, None),
    ("pcp20 on nodes", ["simulate", "pool.swf", "--dispatcher", "pcp20", "--system", "eurora"], None, None),
    ("all kernels", ["warm-up"], 35, None),
)
"""Description, command, and target CPU seconds, cold and warm."""

AFTER_WARM_UP: tuple[list[str], ...] = (
    *(command for _, command, _, _ in COMMANDS),
    ["simulate", "rush.swf", "--dispatcher", "pcp20", "--system", "eurora"],
    ["demo", "--jobs", "20", "--seconds", "2"],
)
"""Commands that find all kernels in the cache after `warm-up`; the demo runs cycles of the bridge."""


def swf(jobs: int, every_s: int, run_s: int, most: int) -> str:
    """Return a trace of `jobs` jobs, one every `every_s`, slightly longer than `run_s`, up to `most` processors."""
    return "; MaxProcs: 64\n" + "".join(
        f"{i} {every_s * i} -1 {run_s + i} {1 + 7 * i % most} -1 -1 {1 + 7 * i % most} {run_s + 50 + i}"
        " -1 1 1 1 -1 1 1 -1 -1\n"
        for i in range(1, jobs)
    )


TRACES = {"pool.swf": swf(200, 10, 50, 16), "rush.swf": swf(60, 1, 1000, 200)}
"""The second requests more than Eurora has, so that pcp20 has to search."""


def cpu_s(command: list[str], install: Path) -> float:
    """Return the CPU seconds of one run of `command` with its children."""
    return run(command, install)[0]


def run(command: list[str], install: Path) -> tuple[float, bool]:
    """Return the CPU seconds of one run of `command` with its children, and whether it compiled kernels."""
    paths = os.pathsep.join(str(install / part) for part in (".", "sim", "bridge"))
    kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "cpsched_bridge.program.cli", *command],
        env=kept | {"HOME": str(install / "home"), "PYTHONPATH": paths},
        cwd=install,
        check=True,
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent_s, "compiling" in done.stderr


def left_out() -> list[str]:
    """Return the commands that compile something after `warm-up`."""
    with tempfile.TemporaryDirectory() as folder:
        install = fresh_install(Path(folder))
        _, compiled = run(["warm-up"], install)
        assert compiled, "warm-up did not say that it compiles"
        return [" ".join(command) for command in AFTER_WARM_UP if run(command, install)[1]]


def fresh_install(root: Path) -> Path:
    """Copy the packages without compiled kernels, and write small traces beside them."""
    for package in ("cpsched", "sim", "bridge"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in TRACES.items():
        (root / name).write_text(text)
    return root


def main(words: list[str]) -> None:
    """Print a line for each command, or for those whose description has one of the words."""
    print("CPU seconds                    cold (target)     warm (target)", flush=True)
    for title, command, cold_target, warm_target in COMMANDS:
        if words and not any(word in title for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            install = fresh_install(Path(folder))
            cold, warm = cpu_s(command, install), cpu_s(command, install)
        targets = [f"({target:g})" if target else "" for target in (cold_target, warm_target)]
        print(f"  {title:24} {cold:10.1f} {targets[0]:8} {warm:8.2f} {targets[1]}", flush=True)
    if not words:
        print("  compile after warm-up:  ", "; ".join(left_out()) or "none", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
