"""Rerun the papers' studies and compare each schedule with the committed one.

Usage: `python studies/rerun.py [STUDY ...]`. Without arguments, studies whose committed cases took over an hour are
skipped. `cpsched study run` shows the tables of a study. The exit code is 1 if a study could not be run or a schedule
differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

STUDIES = Path(__file__).resolve().parent
BUILT = STUDIES.parent / "build" / "studies"
LONG_S = 3600


def results(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a results file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def schedules(lines: list[dict[str, Any]]) -> dict[tuple[str, str, str, int], str]:
    """Return each ended case's schedule digest by (trace, window, policy, seed)."""
    ended = (line for line in lines if line["result"]["outcome"] == "ended")
    names = ("trace", "window", "policy", "seed")
    return {tuple(line["labels"][name] for name in names): line["result"]["schedule_sha256"] for line in ended}


def rerun(name: str, skip_long: bool) -> bool:
    """Run one study in build/studies and print the differences; return whether there are none."""
    study, out = STUDIES / name / "study.yaml", BUILT / name
    committed = results(STUDIES / name / "results.jsonl")
    minutes = sum(line["made"]["wall_s"] for line in committed) / 60
    if skip_long and minutes * 60 >= LONG_S:
        print(f"{name}: skipped, its committed cases took {minutes:.0f} min")
        return True
    print(f"{name}: its committed cases took {minutes:.0f} min", flush=True)
    (out / "results.jsonl").unlink(missing_ok=True)  # from an earlier run
    subprocess.run([Path(sys.executable).with_name("cpsched"), "study", "run", study, "--out", out], check=False)
    if not (out / "results.jsonl").exists():
        print(f"{name}: could not be run")
        return False
    before, now = schedules(committed), schedules(results(out / "results.jsonl"))
    different = [case for case in before if now.get(case) != before[case]]
    for case in different:
        print(f"{name}: {' '.join(map(str, case))}: {'differs' if case in now else 'has no result'}")
    print(f"{name}: {len(before) - len(different)} of {len(before)} schedules are as committed")
    return not different


if __name__ == "__main__":
    wanted = sys.argv[1:]
    known = sorted(path.parent.name for path in STUDIES.glob("*/study.yaml"))
    if unknown := [name for name in wanted if name not in known]:
        sys.exit(f"error: study={unknown[0]}: must be one of {', '.join(known)}")
    alike = [rerun(name, skip_long=not wanted) for name in wanted or known]
    sys.exit(0 if all(alike) else 1)
