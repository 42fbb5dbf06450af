"""Runs the tests that failed once more, each alone, and names them: `python -m tests.again CACHE`.

CACHE is the `cache_dir` of the run before. Tests share their machine with each other and with whatever else runs
there, so one failure may be the machine's; many are not, and run no more. The exit status is 0 only if each test
passes alone; the names are printed either way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Run = Callable[[str], bool]
"""Runs one test, given its name, alone; returns whether it passed."""

MOST = 10
"""More failures than these are nobody's but the code's."""


def failed_tests(cache: Path) -> list[str]:
    """The names of the tests that failed in the run that kept its notes in `cache`; none where it kept no notes."""
    notes = cache / "v/cache/lastfailed"
    return sorted(json.loads(notes.read_text())) if notes.is_file() else []


def again(cache: Path, run: Run) -> int:
    """Run every failed test alone and print what became of it; returns the exit status."""
    names = failed_tests(cache)
    if len(names) > MOST:
        print(f"tests: {len(names)} failed, more than {MOST}: none runs again")
        return 1
    passed = [name for name in names if run(name)]
    for name in names:
        print(f"tests: {name} failed; alone it {'passed' if name in passed else 'FAILED again'}")
    return 0 if names and passed == names else 1


def by_pytest(name: str) -> bool:
    """Run the test in a pytest of its own, which leaves the notes of the first run as they are."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", name]
    environment = {
        key: value for key, value in os.environ.items() if key != "CPSCHED_REPORT"
    }  # that of the first run stays
    return subprocess.run(command, check=False, env=environment).returncode == 0


if __name__ == "__main__":
    sys.exit(again(Path(sys.argv[1]), by_pytest))
