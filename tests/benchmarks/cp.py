"""The family of constraint programming on whole replays: completion, time per decision, slowdown, wait, violations.

`python -m tests.benchmarks.cp [eurora|kit|kth] [dispatcher ...] [jobs=N] [predictor=NAME] [NAME=VALUE ...]`: each
dispatcher in a process of its own, on 20,000 generated Eurora jobs, KIT ForHLR II's first 25,000, or KTH-SP2, of which
`jobs` takes the first so many. Other settings go to the dispatchers; `certain=no` asks the solver always, which is what
the papers measured. On KTH, with run times known and one second a round, the four metrics of debs24 are printed in
percent of list-reg on the same jobs, beside its table 2 (whole trace, 20 s a round).

Times of a decision are wall clock and CPU (of the replay, over all decisions); believe the latter on a busy machine.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cpsched import catalogue
from cpsched.policy_spec import setting_names
from cpsched_sim.compiling import warm_up
from cpsched_sim.experiment import Simulation, simulate
from cpsched_sim.systems.system import System, load_system
from cpsched_sim.workloads.eurora import eurora_jobs
from cpsched_sim.workloads.load import Workload, load
from tests.searches import studied
from tests.traces import KIT, KTH, trace

FAMILY = ("hcp19", "hcp2", "hcp1", "hcp", "cph", "pcp20", "pcp19", "pcp2", "pcp1", "pcp")
PER_OBJECTIVE = ("list-saf", "list-laf", "cp-bsld", "cp-af", "cp-awf", "cp-p2sf", "cp-bsld+", "cp-p2sf+")
CHOSEN = {"eurora": FAMILY, "kit": FAMILY, "kth": PER_OBJECTIVE}
PUBLISHED_MS = {
    ("eurora", "pcp20"): "252-364", ("eurora", "pcp19"): "512-565", ("eurora", "hcp19"): "385-411",
    ("eurora", "hcp"): "1014", ("eurora", "pcp1"): "743", ("eurora", "hcp1"): "703", ("eurora", "pcp"): "never ends",
    ("kit", "pcp20"): "537-662", ("kit", "hcp19"): "270-292", ("kit", "pcp19"): "never ends",
}  # fmt: skip
TABLE_2 = {"cp-bsld": "BSLD 32", "cp-af": "AF 76", "cp-awf": "AWF 9x (illegible)", "cp-p2sf": "P2SF 92"}
TABLE_2 |= {"list-saf": "BSLD 31, AF 83", "list-laf": "AWF 94", "cp-p2sf+": "P2SF about 90"}
METRICS = ("bsld", "af", "awf", "p2sf")


def workload(name: str, jobs: int | None) -> Workload:
    """The jobs, or the first so many."""
    if name == "kit":
        return load(trace(KIT), "kit-forhlr2", False, jobs)
    if name == "kth":
        return load(trace(KTH), None, False, jobs)
    made = eurora_jobs(days=32, seed=1)[: jobs or 20_000]
    return Workload("generated", "eurora", System(load_system("eurora")).cluster, made, {}, ())


def line(name: str, dispatcher: str, outcome: Simulation) -> str:
    """The figures of one replay."""
    summary, measures = outcome.summary(), outcome.measures
    dispatch = summary["dispatch"]
    decisions = max(1, len(outcome.schedule.dispatch_s))
    slowdown = float(np.mean((measures.end_s - measures.submit_s) / (measures.end_s - measures.start_s)))
    published = PUBLISHED_MS.get((name, dispatcher), "-")
    return (
        f"{name:6} {dispatcher:9} {summary['jobs']}/{len(outcome.workload.jobs)} jobs; a decision:"
        f" {summary['cpu_s'] * 1000 / decisions:.2f} ms CPU, {dispatch['mean_ms']:.2f} wall,"
        f" p99 {dispatch['p99_ms']:.0f},"
        f" max {dispatch['max_ms']:.0f} (published {published});"
        f" slowdown {slowdown:.2f},"
        f" wait {summary['mean_wait_s']:.0f} s; violations {summary['violations']}; {summary['paths']}"
    )


def report(name: str, dispatcher: str, jobs: int | None, predictor: str, given: dict[str, str]) -> None:
    """Replay, and print."""
    work = workload(name, jobs)
    keys = {*setting_names(catalogue.DISPATCHERS.find(dispatcher)), "certain", "equal_jobs"}
    defaults = {"limit_s": "1"} if name == "kth" else {}
    settings = {key: value for key, value in (defaults | given).items() if key in keys}
    if "effort" in settings:
        settings.pop("limit_s", None)
    outcome = simulate(work, studied(dispatcher, settings), predictor)
    print(line(name, dispatcher, outcome), flush=True)
    if name == "kth":
        base = simulate(work, "list-reg", predictor).summary()
        found = outcome.summary()
        ratios = ", ".join(f"{metric.upper()} {100 * found[metric] / base[metric]:.1f}" for metric in METRICS)
        print(f"       percent of list-reg: {ratios} (debs24: {TABLE_2.get(dispatcher, '-')})", flush=True)


def main(words: list[str]) -> None:
    """Run what the words name."""
    given = dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word]
    systems = [name for name in names if name in CHOSEN] or list(CHOSEN)
    dispatchers = [name for name in names if name not in CHOSEN]
    if len(systems) == 1 and len(dispatchers) == 1:
        jobs = int(given.pop("jobs")) if "jobs" in given else None
        predictor = given.pop("predictor", "oracle" if systems[0] == "kth" else "walltime")
        warm_up()
        try:
            report(systems[0], dispatchers[0], jobs, predictor, given)
        except pytest.skip.Exception as absent:
            print(f"{systems[0]}: skipped: {absent}")
        return
    rest = [f"{key}={value}" for key, value in given.items()]
    for system in systems:
        for dispatcher in dispatchers or CHOSEN[system]:
            subprocess.run([sys.executable, "-m", "tests.benchmarks.cp", system, dispatcher, *rest], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
