"""Sizes of the problems of cp19 table 2, round by round, into `studies/cp19/sizes.json`.

`python -m docs.scripts.papers.sizes`: intervals are jobs in the model and running ones; requested resources are those
of the jobs in the model; available ones are free. Resources of all kinds are added up, memory in GiB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.cp import cp_problem
from cpsched.kernels.cp.startable_jobs import startable
from cpsched.model import Decision, EndedJob, Need, Snapshot
from cpsched.policy_spec import PolicySpec
from cpsched_sim.cluster.replay import replay
from cpsched_sim.files import write_atomically
from cpsched_sim.oracle import SIMULATION_REGISTRIES
from cpsched_sim.simulation import ReplaySetup
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.traces.trace_job import TraceJob
from cpsched_sim.workloads.eurora import RESOURCES, eurora_jobs
from docs.scripts.papers.spreads import STUDIES

DAYS, SEED, CONSIDERED = 2, 1, 100
CASES = {
    "PCP3-R": ("pcp19", "oracle"), "PCP3-D": ("pcp19", "profile"), "HCP": ("hcp", "walltime"),
    "HCP1-W": ("hcp1", "walltime"), "HCP3-R": ("hcp19", "oracle"), "HCP3-D": ("hcp19", "profile"),
}  # fmt: skip
"""Columns of the table. PCP1-W does not end here."""
WEIGHTS = np.array([1 / 1024 if name == "memory_mib" else 1.0 for name in RESOURCES])
FILE = STUDIES / "cp19" / "sizes.json"

Watch = TypeVar("Watch", bound=Dispatcher)
"""A dispatcher that hands on to another one, and notes what it sees."""


class Sizing(Dispatcher):
    """Another dispatcher, of whose rounds the sizes are kept."""

    def __init__(self, dispatcher: Dispatcher, whole_queue: bool) -> None:
        self._inner, self._whole_queue = dispatcher, whole_queue
        self.learns = dispatcher.learns
        self.sizes: list[tuple[float, float, float]] = []

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """What the other dispatcher decides."""
        slots = snapshot.queue
        if not self._whole_queue:
            slots = startable(cp_problem.cp_instance_of(snapshot), slots, CONSIDERED)
        asked = snapshot.table.units[slots, None] * snapshot.table.per_unit[slots]
        intervals = len(slots) + len(snapshot.running)
        self.sizes.append((intervals, float((asked @ WEIGHTS).sum()), float((snapshot.free @ WEIGHTS).sum())))
        return self._inner.decide(snapshot, need)

    def learn(self, ended: EndedJob) -> None:
        """Tell the other dispatcher."""
        self._inner.learn(ended)


def watched(dispatcher: str, predictor: str, jobs: Sequence[TraceJob], watch: Callable[[Dispatcher], Watch]) -> Watch:
    """Replay jobs of Eurora with a watch on the dispatcher, whose searches are bounded as in the studies."""
    policy = ReplaySetup(PolicySpec.of(dispatcher, predictor, {"effort": "300"}, known=SIMULATION_REGISTRIES)).build(
        jobs
    )
    policy.dispatcher = found = watch(policy.dispatcher)
    replay(jobs, System(load_system("eurora")).cluster, policy)
    return found


def sizes_of(dispatcher: str, predictor: str, jobs: Sequence[TraceJob]) -> dict[str, float]:
    """Means over all rounds of a replay."""
    sizing = watched(dispatcher, predictor, jobs, lambda inner: Sizing(inner, dispatcher == "hcp"))
    means = np.mean(sizing.sizes, axis=0)
    return {name: round(float(mean), 1) for name, mean in zip(("intervals", "requested", "free"), means, strict=True)}


def main() -> None:
    """Write the file."""
    jobs = eurora_jobs(DAYS, SEED)
    found = {name: sizes_of(*words, jobs) for name, words in CASES.items()}
    write_atomically(FILE, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
