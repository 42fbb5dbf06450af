"""`python -m tests.benchmarks [NAME]...`: run all benchmarks, or the named ones, each in its own process.

A benchmark is a module of this package with a `main(words)`; `SUITES` lists them in running order.
"""

from __future__ import annotations

import subprocess
import sys

SUITES = ("lists", "lookahead", "preemption", "cold", "journal", "isolation", "forecasts")


def run(names: list[str]) -> int:
    """Run the named benchmarks; return an exit code."""
    unknown = set(names) - set(SUITES)
    if unknown:
        print(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(SUITES)}", file=sys.stderr)
        return 2
    for name in names or SUITES:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
