"""PCP'20 beside PCP'19 on the same rounds (pcp20 section 5.3, figures 6 and 7), into `studies/pcp20/instances.json`.

`python -m docs.scripts.papers.instances`: the contended rounds of a replay under PCP'19, with predictions (D) and with
real run times (R), are recorded and solved again by both, each time by a new dispatcher. In other rounds neither asks
its solver. A row has the number of the round, variables of PCP'19 and PCP'20, and their CPU time in ms.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cpsched_sim.files import sha256_of, write_whole
from cpsched_sim.instances import Recording, Solved, header_to_json, write_instances
from cpsched_sim.instances_solving import solve_all
from cpsched_sim.systems.system import System, load_system
from cpsched_sim.workloads.eurora import eurora_jobs
from docs.scripts.papers.sizes import watched
from docs.scripts.papers.spreads import STUDIES

DAYS, SEED = 4, 1
PREDICTORS = {"D": "profile", "R": "oracle"}
PAIR = ("pcp19", "pcp20")
EFFORT = {"effort": "300"}
FILE = STUDIES / "pcp20" / "instances.json"


def rows_of(solved: dict[str, list[Solved]]) -> list[list[float]]:
    """[number, variables of PCP'19, of PCP'20, CPU time of PCP'19 in ms, of PCP'20] of each instance."""
    pairs = zip(*(solved[name] for name in PAIR), strict=True)
    return [
        [one.instance, one.variables, other.variables, round(one.cpu_ms, 3), round(other.cpu_ms, 3)]
        for one, other in pairs
    ]


def found(letter: str, folder: Path) -> dict[str, Any]:
    """The instances of one predictor: the digest of their file, and their rows."""
    recording = watched(
        PAIR[0], PREDICTORS[letter], eurora_jobs(DAYS, SEED), lambda inner: Recording(inner, True, 1, None)
    )
    path = folder / f"{letter}.jsonl.gz"
    origin = {"days": DAYS, "seed": SEED, "dispatcher": PAIR[0], "predictor": PREDICTORS[letter], **EFFORT}
    write_instances(path, header_to_json(System(load_system("eurora")).cluster, origin), recording.lines)
    solved = dict(zip(PAIR, solve_all(path, PAIR, dict.fromkeys(PAIR, EFFORT)), strict=True))
    return {**origin, "instances_sha256": sha256_of(path), "rows": rows_of(solved)}


def main() -> None:
    """Write the file."""
    with TemporaryDirectory() as folder:
        told = {letter: found(letter, Path(folder)) for letter in PREDICTORS}
    lines = [f"{json.dumps(letter)}: {json.dumps(each)}" for letter, each in told.items()]
    write_whole(FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


if __name__ == "__main__":
    main()
