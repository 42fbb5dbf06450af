"""The simulator: replay a trace with a dispatcher and a predictor.

    import cpsched_sim
    outcome = cpsched_sim.simulate("KTH-SP2.swf.gz", "easy", "last-two")
    print(outcome)              # a table of all metrics; see also outcome.bsld, .schedule, .to_frame()

The public API consists of `load`, `from_frame`, `simulate`, `compare`, `recorded_schedule_of`, `METRICS`, and the types
`Workload`, `TraceJob`, `Simulation`, `Comparison`, `Schedule` and `TraceDialect` (options for accounting data).
`run_study` runs the replays that a study file describes, and returns `StudyResults`. `draw_bars`, `draw_distributions`,
`draw_utilization` and `draw_account_shares` return a `Chart`. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpsched.package_imports import lazy_attributes, warn_if_installations_differ

if TYPE_CHECKING:
    from cpsched.metrics import METRICS
    from cpsched_sim.cluster.replay import Schedule
    from cpsched_sim.comparison import Comparison, compare
    from cpsched_sim.recorded_schedule import recorded_schedule_of
    from cpsched_sim.report.charts import Chart, draw_account_shares, draw_bars, draw_distributions, draw_utilization
    from cpsched_sim.simulation import Simulation, simulate
    from cpsched_sim.study.study_report import StudyResults
    from cpsched_sim.study.study_runner import run_study
    from cpsched_sim.traces.trace_jobs import TraceJob
    from cpsched_sim.traces.trace_record import TraceDialect
    from cpsched_sim.workloads.data_frame_reader import from_frame
    from cpsched_sim.workloads.workload_loader import Workload, load

_MODULE_BY_NAME = {
    "METRICS": "cpsched.metrics",
    "Comparison": "cpsched_sim.comparison",
    "TraceDialect": "cpsched_sim.traces.trace_record",
    "Chart": "cpsched_sim.report.charts",
    "StudyResults": "cpsched_sim.study.study_report",
    "Schedule": "cpsched_sim.cluster.replay",
    "Simulation": "cpsched_sim.simulation",
    "TraceJob": "cpsched_sim.traces.trace_jobs",
    "Workload": "cpsched_sim.workloads.workload_loader",
    "compare": "cpsched_sim.comparison",
    "draw_bars": "cpsched_sim.report.charts",
    "draw_distributions": "cpsched_sim.report.charts",
    "draw_account_shares": "cpsched_sim.report.charts",
    "draw_utilization": "cpsched_sim.report.charts",
    "from_frame": "cpsched_sim.workloads.data_frame_reader",
    "load": "cpsched_sim.workloads.workload_loader",
    "recorded_schedule_of": "cpsched_sim.recorded_schedule",
    "run_study": "cpsched_sim.study.study_runner",
    "simulate": "cpsched_sim.simulation",
}
"""The module that defines each public name."""

__all__ = [
    "METRICS",
    "Chart",
    "Comparison",
    "Schedule",
    "Simulation",
    "StudyResults",
    "TraceDialect",
    "TraceJob",
    "Workload",
    "compare",
    "draw_account_shares",
    "draw_bars",
    "draw_distributions",
    "draw_utilization",
    "from_frame",
    "load",
    "recorded_schedule_of",
    "run_study",
    "simulate",
]

warn_if_installations_differ(__file__)
__getattr__, __dir__ = lazy_attributes(globals(), _MODULE_BY_NAME)
