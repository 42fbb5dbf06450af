"""Run one replay, and compute its schedule and metrics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import CpschedError, InvalidValue
from cpsched.formatting import format_count, format_number, join_repr_lines
from cpsched.metrics import METRICS, Metric, ScheduleData, find_metric, known_metrics
from cpsched.model import NEVER
from cpsched.model.job_table import read_only_view
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.base import Predictor
from cpsched.registry import PolicyRegistries, Registry
from cpsched_sim import data_frames, untrained_copies
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES, Clairvoyant
from cpsched_sim.cluster.preemption import summarize_preemptions
from cpsched_sim.cluster.replay import Progress, ReplayOptions, Schedule, SchedulingOverhead, check_all_started, replay
from cpsched_sim.errors import InputError
from cpsched_sim.file_io import read_setting_file, write_atomically, write_csv
from cpsched_sim.recorded_schedule import mismatch_warning, recorded_schedule_of
from cpsched_sim.replay_hints import find_replay_hints
from cpsched_sim.report_document import ReportParagraph, ReportTable, render_fragment
from cpsched_sim.result_files import SUMMARY_FILE, manifest_content
from cpsched_sim.simulation_metrics import DecisionTimes, metric_values
from cpsched_sim.site.fairness import fairness_by_account_and_qos, site_policy_metrics
from cpsched_sim.site.policy_file import SitePolicyFile
from cpsched_sim.traces.trace_jobs import ColumnarTrace, SchedulerVisibleJobs, TraceJob
from cpsched_sim.workloads.workload_loader import Workload, apply_site_policy, load

if TYPE_CHECKING:
    from cpsched_sim.data_frames import DataFrame

SCHEDULE_FILE = "schedule.csv.gz"

DispatcherLike = str | Dispatcher | type[Dispatcher]
"""A name, `package.module:Class`, an instance, or a class."""
PredictorLike = str | Predictor | type[Predictor]
"""A name, `package.module:Class`, an instance, or a class."""
MetricLike = str | Metric
"""A name, `package.module:METRIC`, or a metric."""


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """The policy and the options of a replay, as text."""

    policy: PolicySpec = field(default_factory=PolicySpec)
    charge: SchedulingOverhead = None

    def build(self, jobs: Iterable[TraceJob] = (), known: PolicyRegistries = SIMULATION_REGISTRIES) -> Policy:
        """Build the policy, and pass `jobs` to its clairvoyant parts.

        Raise the same errors as `PolicySpec.build`.
        """
        policy = self.policy.build(read_setting_file, known)
        for part in (policy.predictor, policy.dispatcher):
            if isinstance(part, Clairvoyant):
                part.observe_truth(jobs)
        return policy


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Simulation:
    """A replayed workload with its schedule and the metrics of all jobs that ran.

    Every metric in the table is an attribute (`.bsld`, `.mean_wait_s`, ...). Printing the object shows them.
    `policy` is the policy of the replay in its final state. `more` contains additional metrics.
    """

    workload: Workload
    setup: ReplaySpec
    schedule: Schedule
    measures: ScheduleData
    policy: Policy
    more: tuple[Metric, ...] = ()

    @property
    def hints(self) -> tuple[str, ...]:
        """Return hints about settings that may distort the result."""
        return find_replay_hints(self.policy, self.schedule)

    def _repr_html_(self) -> str:
        """Return the metrics with their formulas as HTML for a notebook."""
        rows = [
            (row.heading, format_number(row.compute(self.measures)), row.unit, row.formula)
            for row in self._shown_metrics()
        ]
        table = ReportTable(self._title(), ("metric", "figure", "unit", "formula"), rows)
        return render_fragment(table, *map(ReportParagraph, self._notes()))

    def _shown_metrics(self) -> tuple[Metric, ...]:
        return (*METRICS, *self.more)

    @property
    def never_started_count(self) -> int:
        """Return the number of jobs that the cluster or a limit never allowed to start."""
        return len(self.workload.jobs) - len(self.measures.start_s)

    def metric(self, name: MetricLike) -> float:
        """Return the value of a metric, which may be a plug-in or a `Metric` object."""
        return find_metric(name).compute(self.measures)

    def __getattr__(self, name: str) -> float:
        """Return the value of the metric with this name."""
        if name.startswith("_"):
            raise AttributeError(name)
        known = {row.name: row for row in self._shown_metrics()}
        if name not in known and name not in {plugin.name for plugin in known_metrics().plugins()}:
            raise AttributeError(f"a simulation has no metric {name!r}: its metrics are {', '.join(known)}")
        return self.metric(known.get(name, name))

    def __dir__(self) -> list[str]:
        """Return the names of the attributes and metrics, for completion."""
        return [*object.__dir__(self), *(row.name for row in self._shown_metrics())]

    def summary(self) -> dict[str, Any]:
        """Return the values of `cpsched simulate --json`. `jobs` counts the jobs that ran."""
        measures, schedule = self.measures, self.schedule
        return {
            **metric_values(measures, self.more),
            "rounds": schedule.rounds,
            "cpu_s": schedule.cpu_s,
            "violations": len(schedule.violations),
            "dispatch": asdict(DecisionTimes.of(schedule.dispatch_s)),
            "paths": dict(schedule.paths),
            **(fairness_by_account_and_qos(measures, self.workload.site) if self.workload.site is not None else {}),
            **self._preemption_counts(),
        }

    def _preemption_counts(self) -> dict[str, Any]:
        """Return preemption statistics, or {} if the site does not preempt jobs."""
        if self.workload.site is None or self.workload.site.policy.preemption is None:
            return {}
        submit_s = ColumnarTrace.of(self.workload.jobs).submit_s
        return {"preemption": summarize_preemptions(self.schedule.preemptions, submit_s, self.schedule.start_s)}

    def mismatch_warning(self) -> str:
        """Return a warning if the trace is probably from another machine, or ""."""
        return mismatch_warning(recorded_schedule_of(self.workload), [self.metric("mean_wait_s")])

    def to_frame(self) -> DataFrame:
        """Return the jobs as a pandas frame with one row per job id.

        Raise `InputError`. See `cpsched_sim.data_frames`.

        The times of jobs that never started are missing.
        """
        schedule = self.schedule
        return data_frames.jobs_to_frame(self.workload.jobs, (schedule.start_s, schedule.end_s, schedule.processors))

    def _title(self) -> str:
        spec, workload = self.setup.policy, self.workload
        names = f"{plugin_display_name(spec.dispatcher)} / {plugin_display_name(spec.predictor)}"
        return f"{names}: {workload.name} on {workload.system}, {format_count(len(self.measures.start_s), 'job')} ran"

    def _notes(self) -> list[str]:
        """Return notes on the result, one sentence each."""
        notes = [f"hint: {hint}" for hint in self.hints]
        if self.never_started_count:
            notes.insert(0, f"{format_count(self.never_started_count, 'job')} never started")
        if why := self.mismatch_warning():
            notes.append(f"warning: {why}")
        return notes

    def __repr__(self) -> str:
        metrics = (
            f"  {row.heading:<14}{format_number(row.compute(self.measures)):>12} {row.unit}".rstrip()
            for row in self._shown_metrics()
        )
        return join_repr_lines([self._title(), *metrics, *(f"  {note}" for note in self._notes())], "summary()")


def plugin_display_name(text: str) -> str:
    """Return the class in `package.module:Class`. Return other names unchanged."""
    return text.rpartition(":")[2].rpartition(".")[2] if ":" in text else text


def simulate(
    trace: str | PathLike[str] | Workload,
    dispatcher: DispatcherLike = "easy",
    predictor: PredictorLike = "walltime",
    *,
    settings: Mapping[str, object] | None = None,
    charge: SchedulingOverhead = None,
    metrics: Sequence[MetricLike] = (),
    policy: str | PathLike[str] | SitePolicyFile | None = None,
) -> Simulation:
    """Replay a trace and return the schedule with its metrics.

    `trace` is a file in any known format, or a workload returned by `load`, which has the options of reading.
    `settings` contains parameters of the dispatcher or the predictor by name, and `overrun`. Search-based dispatchers
    also accept `seed`, and either `limit_s` (maximum seconds per decision) or `effort` (a deterministic limit).
    `charge` is the duration of a decision on the simulated clock: None
    for zero, "measured", or milliseconds. `metrics` are shown in addition to those in the table. `policy` is a site
    policy: a policy file, or the result of `load_site_policy_file`. A dispatcher or predictor instance is used as is,
    in its current state.

    Raise `CpschedError` for invalid names and values, `SimulationError` for unusable files, and `PluginError` with the
    file and line for a faulty plug-in (dispatcher, predictor, metric or trace format). A plug-in fails if it raises,
    returns an invalid value, breaks a rule, or never starts a job.
    """
    workload = to_workload(trace, policy)
    words, known = policy_names_and_registries(dispatcher, predictor)
    for part in (dispatcher, predictor):
        if isinstance(part, Dispatcher | Predictor):
            untrained_copies.store_untrained_copy(part)
    setup = ReplaySpec(PolicySpec.of(*words, settings, known), charge)
    return replay_workload(workload, setup, known=known, more=tuple(map(find_metric, metrics)))


def to_workload(
    trace: str | PathLike[str] | Workload, policy: str | PathLike[str] | SitePolicyFile | None = None
) -> Workload:
    """Load a trace file, or return a given workload, with a site policy if there is one. Raise `InvalidValue`."""
    if not isinstance(trace, str | PathLike | Workload):
        raise InvalidValue("trace", repr(trace), "must be a path or a loaded workload")
    workload = trace if isinstance(trace, Workload) else load(Path(trace))
    return workload if policy is None else apply_site_policy(workload, policy)


def policy_names_and_registries(
    dispatcher: DispatcherLike, predictor: PredictorLike, labels: tuple[str, str] = ("", ""), afresh: bool = False
) -> tuple[tuple[str, str], PolicyRegistries]:
    """Return the names of a dispatcher and a predictor, with their registries.

    `labels` are the names for objects without one. With `afresh`, each build uses a copy of an instance in its state
    before its first simulation.
    """
    dispatcher_words, dispatchers = _name_and_registry(dispatcher, SIMULATION_REGISTRIES.dispatchers, labels[0], afresh)
    predictor_words, predictors = _name_and_registry(predictor, SIMULATION_REGISTRIES.predictors, labels[1], afresh)
    return (dispatcher_words, predictor_words), PolicyRegistries(dispatchers, predictors)


def _name_and_registry(thing: Any, known: Registry[Any], label: str, afresh: bool) -> tuple[str, Registry[Any]]:
    if isinstance(thing, str):
        return thing, known
    listing = known.registration_of(thing, label)
    if afresh and isinstance(thing, known.base):
        listing = replace(listing, factory=lambda: untrained_copies.untrained_copy(known.kind, thing))
    return listing.name, known.extended_with(listing)


def replay_workload(
    workload: Workload,
    setup: ReplaySpec,
    progress: Progress | None = None,
    known: PolicyRegistries = SIMULATION_REGISTRIES,
    more: tuple[Metric, ...] = (),
) -> Simulation:
    """Replay the workload, with its site policy if it has one.

    Raise `PolicyError` if the dispatcher or predictor fails, and `InputError` if no job can run on the system.
    """
    policy, site = setup.build(workload.jobs, known), workload.site
    for ended in workload.history if policy.learns else ():
        policy.learn(ended)
    options = ReplayOptions(charge=setup.charge, progress=progress, site=site, strict=True)
    schedule = replay(workload.jobs, workload.cluster, policy, options)
    ran = schedule.start_s != NEVER
    if len(schedule.refused) == len(workload.jobs):
        first = next(iter(schedule.refused.values()))
        raise InputError(f"{workload.name}: no job can run on {workload.system}: {first}")
    check_all_started(workload.jobs, schedule.start_s, schedule.refused, policy)
    chosen = slice(None) if ran.all() else np.flatnonzero(ran)
    jobs = ColumnarTrace.of(workload.jobs)
    jobs = jobs if ran.all() else jobs.take(chosen)
    measures = ScheduleData(  # read-only, because metrics share the arrays
        submit_s=read_only_view(jobs.submit_s),
        start_s=read_only_view(schedule.start_s[chosen]),
        end_s=read_only_view(schedule.end_s[chosen]),
        processors=read_only_view(schedule.processors[chosen]),
        machine=int(workload.cluster.capacity[:, 0].sum()),
        jobs=SchedulerVisibleJobs(jobs),
    )
    more = (*more, *(site_policy_metrics(site) if site is not None else ()))
    return Simulation(workload, setup, schedule, measures, policy, more)


def summarize_or_save_schedule(simulation: Simulation, folder: Path | None) -> dict[str, Any]:
    """Return the summary.

    If a metric fails, write the schedule to `folder`, so that it is not lost.
    """
    try:
        return simulation.summary()
    except BaseException:
        if folder is not None:
            _write_schedule(simulation, folder)
        raise


def write_replay_results(
    simulation: Simulation,
    folder: Path,
    summary: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write `schedule.csv.gz` and `summary.json` to `folder` atomically.

    Raise `InputError` on failure.

    The schedule has one line per job in order of arrival: job, submit_s, start_s, end_s, units, nodes. Nodes have the
    form `name:units`, separated by blanks. A job that never ran has neither times nor nodes. The setup in
    `summary.json` includes `more`.
    """
    setup, workload = simulation.setup, simulation.workload
    facts = {
        **(more or {}),
        "left_waiting": simulation.never_started_count,
        "notes": list(workload.notes),
        "hints": list(simulation.hints),
    }
    _write_schedule(simulation, folder)
    written = {**(summary or simulation.summary()), **manifest_content({**replay_inputs(setup, workload), **facts})}
    write_atomically(folder / SUMMARY_FILE, (json.dumps(written, indent=2) + "\n").encode())


def _write_schedule(simulation: Simulation, folder: Path) -> None:
    write_csv(folder / SCHEDULE_FILE, _schedule_rows(simulation))


def replay_inputs(setup: ReplaySpec, workload: Workload) -> dict[str, Any]:
    """Return all inputs of a replay. Equal inputs give equal schedules.

    There are two exceptions: the code of a plug-in may change, and a search may have a time limit.
    """
    return {
        "trace": workload.name,
        "system": workload.system,
        **workload.origin,
        "dispatcher": setup.policy.dispatcher,
        "predictor": setup.policy.predictor,
        "settings": setup.policy.settings(),
        "limits": _search_limits(setup.policy),
        "charge": "none" if setup.charge is None else setup.charge,
    }


def _search_limits(policy: PolicySpec) -> dict[str, Any]:
    """Return the limits of a search, or {} for a dispatcher that does not search."""
    given = policy.dispatcher_settings
    try:
        parameters = SIMULATION_REGISTRIES.dispatchers.find(policy.dispatcher).parameters()
    except CpschedError:  # the settings of an instance or unnamed class are unknown
        return {}
    return {p.name: given.get(p.name, p.default) for p in parameters if p.name in ("limit_s", "effort", "seed")}


def _schedule_rows(simulation: Simulation) -> Iterator[Sequence[object]]:
    yield "job", "submit_s", "start_s", "end_s", "units", "nodes"
    names, schedule = simulation.workload.cluster.node_names, simulation.schedule
    jobs = ColumnarTrace.of(simulation.workload.jobs)
    units = jobs.expand_per_job(request.units for request in jobs.requests)
    columns = (jobs.id, jobs.submit_s, schedule.start_s, schedule.end_s, units)
    for index, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        id, submit_s, start_s, end_s, units_of_job = row
        if start_s == NEVER:
            yield id, submit_s, "", "", units_of_job, ""
            continue
        nodes = " ".join(f"{names[node]}:{units}" for node, units in schedule.placement_of(index))
        yield id, submit_s, start_s, end_s, units_of_job, nodes
