"""`make studies`: the papers' studies anew, and which of the landed results are not of today's code and traces.

A study whose landed cases took an hour or more, one after the other, is not run: what changed of its inputs is told.
With `--land` what was run takes the place of what was landed: `result_files.jsonl`, and spreads where schedules are
kept.
Exit code 1: a study could not be run, such as one whose trace is missing; the others are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cpsched_sim.files import write_atomically
from docs.scripts.papers import spreads
from docs.scripts.papers.spreads import BUILT, ROOT, STUDIES

LONG_S = 3600.0
CPSCHED = Path(sys.executable).parent / "cpsched"


def names(wanted: Sequence[str] = ()) -> list[str]:
    """The studies of that name, or all of them. Raises `ValueError` for a name that no study has."""
    known = sorted(path.parent.name for path in STUDIES.glob("*/study.yaml"))
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"{unknown[0]}: must be one of {', '.join(known)}")
    return list(wanted) or known


def took_s(results: Path) -> float:
    """Wall time of all landed cases, one after the other; 0 where nothing has landed."""
    if not results.exists():
        return 0.0
    cases = {line["digest"]: line["made"]["wall_s"] for line in map(json.loads, results.read_text().splitlines())}
    return float(sum(cases.values()))


def changes(before: Path, after: Path) -> list[str]:
    """A sentence for each case whose schedule is another one than the landed one."""
    one, other = (_schedules(path) for path in (before, after))
    return [f"{' '.join(map(str, case))}: another schedule" for case in one if other.get(case, one[case]) != one[case]]


def _schedules(results: Path) -> dict[tuple[str, str, int], str]:
    """(trace, policy, seed) -> digest of the schedule, of what ended."""
    lines = map(json.loads, results.read_text().splitlines()) if results.exists() else ()
    return {
        (line["labels"]["trace"], line["labels"]["policy"], line["labels"]["seed"]): line["result"]["schedule_sha256"]
        for line in lines
        if line["result"]["outcome"] == "ended"
    }


def renew(name: str, land: bool) -> bool:
    """Run one study, or say what changed. False: it could not be run to its end, and has no results."""
    study, built = STUDIES / name, BUILT / name
    landed, seconds = study / "results.jsonl", took_s(study / "results.jsonl")
    print(f"{name}: its landed cases took {seconds / 60:.0f} min", flush=True)
    if landed.exists():
        command = [CPSCHED, "study", "verify", landed, "--study", study / "study.yaml", "--sample", "0"]
        subprocess.run(command, check=False, cwd=ROOT)
    if seconds >= LONG_S:
        print(f"{name}: not run, that takes over an hour: cpsched study {study / 'study.yaml'} --out {built}")
        return True
    (built / "results.jsonl").unlink(missing_ok=True)  # those of an earlier run are not those of this one
    command = [CPSCHED, "study", study / "study.yaml", "--out", built]
    ended = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL)
    if not (built / "results.jsonl").exists():
        print(f"{name}: could not be run: exit code {ended.returncode}")
        return False
    if ended.returncode:
        print(f"{name}: not all cases have figures")
    told = changes(landed, built / "results.jsonl")
    print("\n".join(told) or f"{name}: every schedule is as landed")
    if land:
        write_atomically(landed, (built / "results.jsonl").read_bytes())
        if (study / "paper.yaml").exists() and (built / "jobs").exists():
            spreads.main([name])
    return True


def main(words: Sequence[str]) -> int:
    """Renew the named studies, or all; the exit code."""
    renewed = [renew(name, "--land" in words) for name in names([word for word in words if word != "--land"])]
    return 0 if all(renewed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
