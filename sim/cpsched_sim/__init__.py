"""A cluster that is not there: replays traces with any dispatcher and predictor, and says what the schedule is worth.

    import cpsched_sim
    outcome = cpsched_sim.simulate("KTH-SP2.swf.gz", "easy", "last-two")
    print(outcome)              # a table of all metrics; outcome.bsld, .schedule, .to_frame()

What a researcher needs stands here: `load`, `simulate`, `compare`, `METRICS`, and what they give back: `Workload`,
`TraceJob`, `Simulation`, `Comparison`, `Schedule`. A name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpsched.lazy import face

if TYPE_CHECKING:
    from cpsched.metrics import METRICS
    from cpsched_sim.cluster.replay import Schedule
    from cpsched_sim.comparison import Comparison, compare
    from cpsched_sim.experiment import Simulation, simulate
    from cpsched_sim.traces.job import TraceJob
    from cpsched_sim.workloads.load import Workload, load

_HOME_OF = {
    "METRICS": "cpsched.metrics",
    "Comparison": "cpsched_sim.comparison",
    "Schedule": "cpsched_sim.cluster.replay",
    "Simulation": "cpsched_sim.experiment",
    "TraceJob": "cpsched_sim.traces.job",
    "Workload": "cpsched_sim.workloads.load",
    "compare": "cpsched_sim.comparison",
    "load": "cpsched_sim.workloads.load",
    "simulate": "cpsched_sim.experiment",
}
"""Name -> the module that it comes from."""

__all__ = [
    "METRICS",
    "Comparison",
    "Schedule",
    "Simulation",
    "TraceJob",
    "Workload",
    "compare",
    "load",
    "simulate",
]

__getattr__, __dir__ = face(globals(), _HOME_OF)
