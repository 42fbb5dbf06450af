"""`lookahead` on whole traces: its worth beside other dispatchers, its time, its deep queues, what its parts bring.

`python -m tests.benchmarks.lookahead [PART]...`, a part being a name in `PARTS`. Figures are realised over the whole
trace. Times are CPU time, measured for each decision; kernels are compiled before the clock starts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cpsched import catalogue
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.lists import ListDispatcher
from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES as OBJECTIVE_ROWS
from cpsched.kernels.moves import ALL_MOVES
from cpsched.model import Cluster, Decision, Need, Snapshot
from cpsched_sim.cluster.state import SimulatedCluster
from cpsched_sim.experiment import Simulation, simulate
from cpsched_sim.promises import promises
from cpsched_sim.systems.system import System, load_system
from cpsched_sim.workloads.eurora import eurora_jobs
from cpsched_sim.workloads.load import Workload, load
from tests.benchmarks import run_parts
from tests.benchmarks.lists import copied, grown
from tests.searches import Ablated
from tests.traces import BLUE, GAIA, KIT, KTH, trace

OBJECTIVES = ("af", "awf", "bsld", "p2sf", "default")
TO_REACH = {
    ("KTH", "af"): "75 / 73", ("KTH", "awf"): "90 / 91", ("KTH", "bsld"): "21 / 38", ("KTH", "p2sf"): "87 / 88",
    ("BLUE", "af"): "48 / 51", ("BLUE", "awf"): "88 / 86", ("BLUE", "bsld"): "10 / 22", ("BLUE", "p2sf"): "85 / 88",
}  # fmt: skip
"""% of List-REG, real | requested run times."""
EURORA_DAYS = 14


def workload(name: str) -> Workload:
    """A shared trace, with its system, or a generated Eurora."""
    if name == "Eurora":
        jobs = eurora_jobs(days=EURORA_DAYS, seed=1)
        return Workload("generated", "eurora", System(load_system("eurora")).cluster, jobs, {}, ())
    files = {"KTH": (KTH, None), "BLUE": (BLUE, None), "Gaia": (GAIA, None), "KIT": (KIT, "kit-forhlr2")}
    file, system = files[name]
    return load(trace(file), system)


def worth(outcome: Simulation) -> dict[str, float]:
    """The measures of the tables."""
    measures = outcome.measures
    names = ("af", "awf", "bsld", "p2sf", "mean_slowdown", "mean_wait_s")
    return {name: outcome.metric(name) for name in names} | {"max_wait_s": float(measures.wait_s.max())}


def quality() -> None:
    """Each objective on two traces with real and with requested run times, in percent of List-REG and of EASY."""
    print("% of List-REG with the same estimates                AF   AWF  BSLD  P2SF  max wait | default: % of EASY")
    for name in ("KTH", "BLUE"):
        work = workload(name)
        for predictor in ("oracle", "walltime"):
            base, easy = (worth(simulate(work, other, predictor)) for other in ("list-reg", "easy"))
            for objective in OBJECTIVES:
                outcome = simulate(work, "lookahead", predictor, settings={"objective": objective})
                found = worth(outcome)
                names = ("af", "awf", "bsld", "p2sf", "max_wait_s")
                row = " ".join(f"{100 * found[key] / base[key]:5.1f}" for key in names)
                of_easy = " ".join(f"{100 * found[key] / easy[key]:5.1f}" for key in names)
                wanted = TO_REACH.get((name, objective), "all below 100")
                print(
                    f"  {name:5}{predictor:9}{objective:9} ({wanted:>13}) {row}"
                    f" | {of_easy if objective == 'default' else ''}"
                    f" violations {len(outcome.schedule.violations)}, {outcome.schedule.cpu_s:.0f} s CPU",
                    flush=True,
                )


def systems() -> None:
    """On Gaia, Eurora and KIT: the same measures beside other dispatchers."""
    for name in ("Gaia", "Eurora", "KIT"):
        work = workload(name)
        for predictor in ("walltime", "profile") if name != "KIT" else ("walltime",):
            for dispatcher, settings in (
                ("easy", {}), ("list-reg", {}), ("list-sjf", {}), ("pcp20", {}), ("lookahead", {}),
                ("lookahead", {"objective": "slowdown"}),
            ):  # fmt: skip
                outcome = simulate(work, dispatcher, predictor, settings=settings)
                found = worth(outcome)
                print(
                    f"  {name:7}{predictor:9}{dispatcher:10}{settings.get('objective', ''):9}"
                    f" AF {found['af']:8.0f} AWF {found['awf']:8.0f}"
                    f" BSLD {found['bsld']:7.2f} P2SF {found['p2sf']:8.0f}"
                    f" slowdown {found['mean_slowdown']:7.2f} wait {found['mean_wait_s']:6.0f}"
                    f" max wait {found['max_wait_s'] / 3600:6.1f} h  violations {len(outcome.schedule.violations)}",
                    flush=True,
                )


@dataclass
class Timed(Dispatcher):
    """A dispatcher whose decisions are timed, in CPU seconds."""

    dispatcher: Dispatcher

    def __post_init__(self) -> None:
        self.learns, self.overrun = self.dispatcher.learns, self.dispatcher.overrun
        self.took_s: list[float] = []

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Decide, and note how long that took."""
        began = time.process_time()
        decision = self.dispatcher.decide(snapshot, need)
        self.took_s.append(time.process_time() - began)
        return decision

    def ms(self) -> npt.NDArray[np.float64]:
        """Milliseconds per decision."""
        return np.array(self.took_s) * 1e3


def speed() -> None:
    """CPU time per decision, and how it grows with the machine."""
    for name, wanted in (("KTH", "mean 0.2"), ("KIT", "median 0.2, p99 20"), ("Eurora", "p99 20")):
        work = workload(name)
        timed = Timed(catalogue.dispatcher("lookahead"))
        simulate(work, timed)
        ms = timed.ms()
        print(
            f"  {name:7} {len(ms)} decisions: mean {ms.mean():.3f} median {np.median(ms):.3f}"
            f" p99 {np.quantile(ms, 0.99):.2f} max {ms.max():.1f} ms CPU (to reach: {wanted})",
            flush=True,
        )
    work = workload("KIT")
    for times in (1, 9, 85):
        cluster, jobs = grown(work.cluster, work.jobs[:6000], times)
        timed = Timed(catalogue.dispatcher("lookahead"))
        simulate(Workload("grown", "kit", cluster, jobs, {}, ()), timed)
        print(f"  KIT grown to {cluster.size:7} nodes: mean {timed.ms().mean():.3f} ms CPU", flush=True)


def deep() -> None:
    """One whole plan on KIT's nodes as the queue grows."""
    print("  a plan of so many queued jobs, ms CPU:    260 (3)  1,126 (30)  10,099 (500)")
    work = workload("KIT")
    for dispatcher in (ListDispatcher(), catalogue.dispatcher("lookahead"), catalogue.dispatcher("easy")):
        row = []
        for length in (260, 1126, 10099):
            state = SimulatedCluster(work.cluster)
            for item in work.jobs[: length + 200]:
                state.submit(item.job, item.run_s)
            state.apply(catalogue.dispatcher("easy").decide(state.snapshot(), "starts").starts)
            dispatcher.decide(state.snapshot())
            began = time.process_time()
            decision = dispatcher.decide(state.snapshot())
            planned = len(decision.plan_by_job(state.snapshot()))
            row.append(f"{(time.process_time() - began) * 1e3:8.1f} ({planned} planned of {state.queue_length})")
        print(f"  {type(dispatcher).__name__:18} {'  '.join(row)}", flush=True)


FRONTIER_NODES = 9408
MARGIN = 500
"""Jobs beyond those that are to wait: some start at once."""
DEEP_ROUNDS = 5


def deepest() -> None:
    """Rounds after a job's end, 50,000 jobs waiting on KIT's nodes and 10,000 on as many nodes as Frontier has."""
    work = workload("KIT")
    for waiting, nodes in ((50_000, work.cluster.size), (10_000, FRONTIER_NODES)):
        times = nodes // work.cluster.size
        jobs = [copied(id, work.jobs[id % len(work.jobs)], times) for id in range(waiting + MARGIN)]
        rows = np.resize(work.cluster.capacity, (nodes, len(work.cluster.resources)))
        cluster = Cluster.of(rows, work.cluster.resources)
        for dispatcher in (Lookahead(), Lookahead("large-jobs"), ListDispatcher()):
            state = SimulatedCluster(cluster)
            for item in jobs:
                state.submit(item.job, item.run_s)
            state.apply(catalogue.dispatcher("easy").decide(state.snapshot(), "starts").starts)
            ms = []
            for _ in range(1 + DEEP_ROUNDS):
                for ended in state.advance(state.next_end_s() or state.now_s):
                    dispatcher.learn(ended)
                began = time.process_time()
                decision = dispatcher.decide(state.snapshot())
                ms.append((time.process_time() - began) * 1e3)
                state.apply(decision.starts)
            told = f"median {np.median(ms[1:]):.0f}, slowest {max(ms[1:]):.0f} ms CPU; first {ms[0]:.0f}"
            name = dispatcher._row.name if isinstance(dispatcher, Lookahead) else "list-reg"  # noqa: SLF001
            print(f"  {state.queue_length} waiting on {cluster.size} nodes: {name:10} {told}", flush=True)


ABLATION: tuple[tuple[str, dict[str, object]], ...] = (
    ("as it is", {}),
    ("no search", {"effort": 0}),
    ("without the last order", {"candidates": 126}),
    ("last order and arrival alone", {"candidates": 3}),
    ("horizon of 20 jobs", {"horizon": 20}),
    ("horizon of 300 jobs", {"horizon": 300}),
    ("no bound of the wait", {"overdue_h": 1e6}),
)

ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("no ageing", {"ageing": 0.0}),
    ("no bound by the queue", {"bounded": False}),
)
"""Changes of the default objective itself."""

MOVES = ("neighbours change places", "a job moves", "to the front", "back", "two change places", "a tenth put back")
SEEDS = (0, 1, 2)
FIRST_JOBS = 12_000


def ablation() -> None:
    """What each part brings."""
    row = OBJECTIVE_ROWS["default"]
    for name in ("KTH", "BLUE"):
        beside = compared_on(name)
        for objective in ("default", "af"):
            more = {"effort": 5 * OBJECTIVE_ROWS[objective].effort}
            for label, settings in (*ABLATION, ("five times the search", more)):
                beside(objective, label, settings)
        for label, changes in ROWS:
            OBJECTIVE_ROWS["default"] = replace(row, **changes)
            beside("default", label, {})
        OBJECTIVE_ROWS["default"] = row


def moves() -> None:
    """What each change of the local search brings: without it, and with it alone."""
    for name in ("KTH", "BLUE"):
        beside = compared_on(name)
        for objective in ("default", "af"):
            beside(objective, "as it is", {})
            beside(objective, "no search", {"effort": 0})
            for which, label in enumerate(MOVES):
                beside(objective, f"without: {label}", {"moves": ALL_MOVES ^ 1 << which})
                beside(objective, f"alone: {label}", {"moves": 1 << which})


def reservations() -> None:
    """What it brings that every job that cannot start now holds its planned slot."""
    for name in ("KTH", "BLUE"):
        beside = compared_on(name)
        for objective in ("default", "af"):
            for count in (None, 20, 5, 1, 0):
                beside(objective, f"reservations: {'all' if count is None else count}", {"reservations": count})


def compared_on(name: str) -> Callable[[str, str, Mapping[str, object]], None]:
    """What prints a row of `lookahead` on a trace's first jobs: means over seeds in percent of List-REG.

    Of the longest waits it prints each. Requested times; the whole of KTH-SP2.
    """
    work = workload(name)
    if name != "KTH":
        work = replace(work, jobs=work.jobs[:FIRST_JOBS])
    base = worth(simulate(work, "list-reg"))

    def show(objective: str, label: str, settings: Mapping[str, object]) -> None:
        given: list[dict[str, Any]] = [{"objective": objective, "seed": seed, **settings} for seed in SEEDS]
        found = [worth(simulate(work, Ablated(**each))) for each in given]
        shares = {key: [100 * each[key] / base[key] for each in found] for key in base}
        means = "  ".join(
            f"{key} {np.mean(shares[key]):5.1f} ({min(shares[key]):.1f} to {max(shares[key]):.1f})"
            for key in ("af", "awf", "bsld", "p2sf")
        )
        longest = ", ".join(f"{share:.0f}" for share in shares["max_wait_s"])
        print(f"  {name:5}{objective:8}{label:34} {means}  longest wait {longest}", flush=True)

    return show


def keeping() -> None:
    """How good expected starts are."""
    for name in ("KTH", "KIT"):
        work = workload(name)
        for dispatcher in ("lookahead", "list-reg"):
            setup = simulate(Workload(work.name, work.system, work.cluster, work.jobs[:1], {}, ()), dispatcher).setup
            for horizon, kept in promises(work, setup.build()).kept().items():
                print(
                    f"  {name:5}{dispatcher:10}{horizon:13}{kept.jobs:7} jobs, no later {100 * kept.on_time:5.1f} %,"
                    f" mean |error| {kept.mean_absolute_error_s / 60:7.1f} min,"
                    f" late p95 {kept.late_p95_s / 60:7.1f} min",
                    flush=True,
                )


PARTS = {
    "quality": quality, "systems": systems, "speed": speed, "deep": deep, "deepest": deepest, "ablation": ablation,
    "moves": moves, "reservations": reservations, "promises": keeping,
}  # fmt: skip


def main(words: list[str]) -> None:
    """Run the named parts; without names all, each in a process of its own."""
    run_parts("tests.benchmarks.lookahead", PARTS, words)


if __name__ == "__main__":
    main(sys.argv[1:])
