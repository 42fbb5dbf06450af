"""Build a study's cases from a file or a mapping, with the inputs of each case."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from cpsched.errors import CpschedError, InvalidValue
from cpsched.formatting import abbreviated_repr
from cpsched.metrics import find_metric
from cpsched.policy_spec import PolicySpec, setting_names
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
from cpsched_sim.errors import InputError
from cpsched_sim.experiments.case_store import code_digest, compute_result_key, plugin_digests, plugin_file_digests
from cpsched_sim.file_io import file_sha256, read_setting_file
from cpsched_sim.input.yaml_tree import YamlTree, read_yaml_tree
from cpsched_sim.site.policy_file import load_site_policy_file
from cpsched_sim.study.study_schema import (
    AXES,
    NO_SITE_POLICY,
    WHOLE_TRACE,
    JobSequenceSchema,
    StudyFileSchema,
    StudyTraceSchema,
    TraceWindowSchema,
)
from cpsched_sim.systems.system_file import bundled_system_names, load_system
from cpsched_sim.workloads.workload_loader import open_trace

TRACES_VARIABLE = "CPSCHED_TRACES"
"""The environment variable that contains the path of the trace folder."""
SEED_SETTING = "seed"
LONGEST_WAIT_METRIC = "longest_wait_s"
MAX_CASES = 100_000
Part = Sequence[float] | Mapping[str, int] | None
"""The part of a trace to replay: [from_day, days], or `jobs` consecutive jobs from index `first` on."""
TIME_LIMIT_NOTE = (
    "has a time limit, so another run may decide differently; for repeatable runs, use effort= instead of limit_s="
)


@dataclass(frozen=True, slots=True)
class StudyCase:
    """One replay in a study. `inputs` contains everything that the result depends on."""

    labels: Mapping[str, Any]
    """Labels by axis. `case` is the name of a named case. `policy` combines dispatcher and predictor."""
    task: Mapping[str, Any]
    """Plain values from which another process can run the case."""
    inputs: Mapping[str, Any]
    by_clock: bool = False
    """Whether the dispatcher has a time limit, so that another run may decide differently."""

    @property
    def digest(self) -> str:
        """Return the digest of the inputs, which names the case's result."""
        return compute_result_key(self.inputs)


@dataclass(frozen=True, slots=True)
class StudyCases:
    """A study: its settings, and its cases in order."""

    words: StudyFileSchema
    cases: tuple[StudyCase, ...]
    excluded: Mapping[str, int]
    """Number of excluded cases by reason."""
    folder: Path
    """The base folder of relative paths."""
    notes: tuple[str, ...] = ()

    __repr__ = abbreviated_repr

    @property
    def limit_s(self) -> float:
        """Return the maximum wall-clock time of a case in seconds."""
        minutes = self.words.limits.minutes
        return 60 * minutes if minutes is not None else math.inf

    @property
    def distinct_cases(self) -> dict[str, StudyCase]:
        """Return the first case with each digest. Several cases may share a digest."""
        found: dict[str, StudyCase] = {}
        for case in self.cases:
            found.setdefault(case.digest, case)
        return found


def read_study(path: str | PathLike[str]) -> StudyCases:
    """Read a study from a file.

    Raise `InvalidFile` with file, line and field, or the exception for an unusable trace.
    """
    return build_cases_of_tree(read_yaml_tree(Path(path)))


def build_cases_of_tree(tree: YamlTree) -> StudyCases:
    """Build a study from the content of its file. Raise as `read_study` does."""
    if tree.content is None:
        raise tree.make_error((), "empty", "must describe a study: cpsched study example prints one")
    return _StudyCaseBuilder(tree, tree.to_model(StudyFileSchema), tree.path.absolute().parent).build_all_cases()


def build_study_cases(schema: Mapping[str, Any], folder: str | PathLike[str] = ".") -> StudyCases:
    """Build a study from a mapping with the keys of a study file.

    Relative paths are relative to `folder`.
    """
    tree = YamlTree(Path("study"), schema)
    return _StudyCaseBuilder(tree, tree.to_model(StudyFileSchema), Path(folder).absolute()).build_all_cases()


def find_input_file(name: str, folder: Path) -> Path | None:
    """Return the path of a file next to the study or in the trace folder, or None."""
    places = [folder / name, *([Path(known) / name] if (known := os.environ.get(TRACES_VARIABLE)) else [])]
    return next((place for place in places if place.is_file()), None)


def require_input_file(name: str, folder: Path) -> str:
    """Return the path of a file next to the study or in the trace folder. Raise `InputError` if it is missing."""
    path = find_input_file(name, folder)
    if path is None:
        raise InputError(f"{name}: is neither next to the study nor in the folder {TRACES_VARIABLE}")
    return str(path)


class _CasePolicy(NamedTuple):
    """A policy's settings, and the digests of the files that it depends on.

    `read` contains the digests, by path, of files in settings and of the plug-ins' source files. `by_clock` states
    whether the dispatcher has a time limit.
    """

    spec: PolicySpec
    files: dict[str, str]
    read: dict[str, str]
    plugins: list[str]
    by_clock: bool


@dataclass(slots=True)
class _StudyCaseBuilder:
    """A builder of a study's cases. Error messages contain the line of the setting."""

    tree: YamlTree
    words: StudyFileSchema
    folder: Path
    notes: list[str] = field(default_factory=list)
    _traces: dict[str, tuple[dict[str, Any], dict[str, Any]] | None] = field(default_factory=dict)
    _systems: dict[str, tuple[str, str]] = field(default_factory=dict)
    _specs: dict[tuple[str, str], _CasePolicy] = field(default_factory=dict)
    _policies: dict[str, tuple[str, str]] = field(default_factory=dict)

    def build_all_cases(self) -> StudyCases:
        self._check_report_names()
        cases, excluded = list[StudyCase](), {each.because: 0 for each in self.words.exclude}
        hits, policies = [0] * len(self.words.exclude), dict[str, tuple[str, str]]()
        for where, labels, window in self._iterate_combinations():
            reasons = [
                at
                for at, each in enumerate(self.words.exclude)
                if all(labels[axis] == value for axis, value in each.matched_axes().items())
            ]
            for at in reasons:
                hits[at] += 1
            if reasons:
                excluded[self.words.exclude[reasons[0]].because] += 1
                continue
            if (case := self._build_case(where, labels, window)) is None:
                continue
            cases.append(case)
            pair = labels["dispatcher"], labels["predictor"]
            if (other := policies.setdefault(cases[-1].labels["policy"], pair)) != pair:
                rule = f"must not have the same label in tables as {other[0]} with {other[1]}"
                raise self.tree.make_error(where, " with ".join(pair), rule)
            if len(cases) > MAX_CASES:
                raise self.tree.make_error(where, len(cases), f"a study must have at most {MAX_CASES:,} cases")
        for at, count in enumerate(hits):
            if not count:
                raise self.tree.make_error(
                    ("exclude", at), "exclusion", "excludes no case: check the spelling of its names"
                )
        if not cases:
            raise self.tree.make_error(("grids",), "nothing", "must have at least one case: add grids or cases")
        baseline = self.words.report.baseline
        if baseline is not None and baseline not in policies:
            rule = f"must be a policy of the study: {', '.join(policies)}"
            raise self.tree.make_error(("report", "baseline"), baseline, rule)
        clocked = sorted({case.labels["dispatcher"] for case in cases if case.by_clock})
        self.notes += [f"{name}: {TIME_LIMIT_NOTE}" for name in clocked]
        return StudyCases(self.words, tuple(cases), excluded, self.folder, tuple(self.notes))

    def _check_report_names(self) -> None:
        """Check the names in the report section before the first replay."""
        report = self.words.report
        named: list[tuple[tuple[str | int, ...], str]] = []
        named += [(("report", "metrics", at), name) for at, name in enumerate(report.metrics)]
        named += [(("report", "tables", at, "metric"), table.metric) for at, table in enumerate(report.tables)]
        named += [(("report", "plots", at, "metric"), plot.metric) for at, plot in enumerate(report.plots)]
        for where, name in named:
            if name not in (LONGEST_WAIT_METRIC, "jobs"):
                self._add_setting_line_to_errors(where, name, partial(find_metric, name))

    def _iterate_combinations(self) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any], Part]]:
        """Yield the location, labels and window of every case, including excluded cases.

        Combinations in grids come first, then named cases.
        """
        for at, grid in enumerate(self.words.grids):
            windows = [each for window in grid.windows for each in _expand_windows(window)]
            axes = (
                grid.traces, grid.systems, grid.loads, windows, grid.dispatchers, grid.predictors, grid.policies,
                grid.seeds,
            )  # fmt: skip
            for values in product(*axes):
                (label, window), rest = values[3], dict(zip(AXES, values, strict=True))
                yield ("grids", at), {"case": "", **rest, "window": label}, window
        names = [case.name for case in self.words.cases]
        for at, case in enumerate(self.words.cases):
            if case.name in names[:at]:
                raise self.tree.make_error(("cases", at, "name"), case.name, "must occur only once")
            axis_values = {axis: getattr(case, axis) for axis in AXES}
            for label, window in _expand_windows(case.window):
                yield ("cases", at), {"case": case.name, **axis_values, "window": label}, window

    def _build_case(self, where: tuple[str | int, ...], labels: dict[str, Any], part: Part) -> StudyCase | None:
        """Return the case, or None if its trace is optional and missing."""
        if (found_trace := self._find_trace(where, labels)) is None:
            return None
        trace, of_trace = found_trace
        seed, system = labels["seed"], labels["system"] or trace.get("system")
        if "generate" in trace:
            trace, of_trace = {**trace, "seed": seed}, {**of_trace, "seed": seed}
        path, digest = self._find_system(where, system) if system is not None else ("", "as the trace says")
        policy, of_policy = self._find_site_policy(where, labels["site_policy"])
        found = self._find_policy(where, labels["dispatcher"], labels["predictor"])
        spec = _add_seed(found.spec, seed)
        read = {**found.read, path: digest} if path not in ("", *bundled_system_names()) else found.read
        words = {
            "dispatcher": spec.dispatcher, "predictor": spec.predictor,
            "dispatcher_settings": dict(spec.dispatcher_settings), "predictor_settings": dict(spec.predictor_settings),
            "overrun": spec.overrun,
        }  # fmt: skip
        inputs = {
            "trace": of_trace, "system": digest, "policy": of_policy, "load": labels["load"], "window": part, **words,
            "files": found.files, "plugins": found.plugins, "code": code_digest(),
        }  # fmt: skip
        task = {
            "trace": trace, "sha256": of_trace.get("sha256"), "system": path or None, "policy": policy or None,
            "policy_sha256": of_policy, "load": labels["load"], "window": part, "spec": words,
            "jobs": self.words.jobs, "read": read,
        }  # fmt: skip
        labels = {
            **labels,
            "policy": f"{labels['dispatcher']} / {labels['predictor']}",
            "system": labels["system"] or "",
            "drawn": "generate" in trace,
        }
        return StudyCase(labels, task, inputs, found.by_clock)

    def _find_trace(
        self, where: tuple[str | int, ...], labels: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        name = labels["trace"]
        if name not in self.words.traces:
            known = ", ".join(self.words.traces)
            raise self.tree.make_error(
                (*where, *_axis_key_path(where, "trace")), name, f"must be one of the study's traces: {known}"
            )
        if name not in self._traces:
            self._traces[name] = self._read_trace(name, self.words.traces[name])
        return self._traces[name]

    def _read_trace(self, name: str, schema: StudyTraceSchema) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the trace's task and inputs, or None for a missing optional trace."""
        if schema.generate is not None:
            made: dict[str, Any] = {"generate": schema.generate, "load": schema.load, "max_jobs": schema.max_jobs}
            made |= {"processors": schema.processors} if schema.days is None else {"days": schema.days}
            return {**made, "system": schema.system}, made
        assert schema.file is not None
        path = find_input_file(schema.file, self.folder)
        recipe = f"; to obtain it: {schema.recipe}" if schema.recipe is not None else ""
        if path is None:
            if schema.optional:
                self.notes.append(f"{name} is omitted: {schema.file} is missing{recipe}")
                return None
            rule = f"is neither next to the study nor in the folder {TRACES_VARIABLE}{recipe}"
            raise self.tree.make_error(("traces", name, "file"), schema.file, rule)
        digest = file_sha256(path)
        if schema.sha256 not in (None, digest):
            if schema.optional:
                self.notes.append(f"{name} is omitted: {path} has a different digest, {digest}{recipe}")
                return None
            raise self.tree.make_error(
                ("traces", name, "sha256"), schema.sha256, f"is not the digest of {path}: {digest}"
            )
        how = {"max_jobs": schema.max_jobs, "lenient": schema.lenient, "format": schema.format}
        reader = self._add_setting_line_to_errors(
            ("traces", name), schema.file, lambda: open_trace(path, schema.lenient, schema.format)
        )
        inputs = {"sha256": digest, **how, "reader": sorted(plugin_file_digests(type(reader).__module__).values())}
        return {"file": str(path), "system": schema.system, **how}, inputs

    def _find_system(self, where: tuple[str | int, ...], name: str) -> tuple[str, str]:
        """Return a system's name or path, and its name or file digest.

        The first is for the task, and the second for the inputs.
        """
        if name not in self._systems:
            path = name if name in bundled_system_names() else str(find_input_file(name, self.folder) or name)
            self._add_setting_line_to_errors(
                (*where, *_axis_key_path(where, "system")), name, lambda: load_system(path)
            )
            self._systems[name] = path, name if path in bundled_system_names() else file_sha256(Path(path))
        return self._systems[name]

    def _find_site_policy(self, where: tuple[str | int, ...], name: str) -> tuple[str, str]:
        if name == NO_SITE_POLICY:
            return "", ""
        if name not in self._policies:
            path = find_input_file(name, self.folder) or Path(name)
            field = "policies" if where[0] == "grids" else "site_policy"
            policy = self._add_setting_line_to_errors((*where, field), name, lambda: load_site_policy_file(path))
            self._policies[name] = str(path), policy.sha256
        return self._policies[name]

    def _find_policy(self, where: tuple[str | int, ...], dispatcher: str, predictor: str) -> _CasePolicy:
        key = dispatcher, predictor
        if key not in self._specs:
            line = (*where, *_axis_key_path(where, "dispatcher"))
            self._specs[key] = self._add_setting_line_to_errors(
                line, f"{dispatcher} / {predictor}", lambda: self._build_case_policy(*key)
            )
        return self._specs[key]

    def _build_case_policy(self, dispatcher: str, predictor: str) -> _CasePolicy:
        name, settings = _split_settings(self.words.dispatchers.get(dispatcher, dispatcher), "dispatcher")
        other, more = _split_settings(self.words.predictors.get(predictor, predictor), "predictor")
        spec = PolicySpec.of(name, other, {**settings, **more}, known=SIMULATION_REGISTRIES)
        listings = SIMULATION_REGISTRIES.dispatchers.find(name), SIMULATION_REGISTRIES.predictors.find(other)
        files, read = dict[str, str](), plugin_digests(name, other)
        plugins = sorted(read.values())
        owners = zip(listings, (spec.dispatcher_settings, spec.predictor_settings), strict=True)
        named = {(p.name, given.get(p.name, "")) for each, given in owners for p in each.parameters() if p.is_file}
        for setting, text in sorted(named - {(name, "") for name, _ in named}):
            path = find_input_file(text, self.folder)
            if path is None or not Path(text).is_absolute():
                raise InvalidValue(setting, text, "must be the absolute path of a file")
            files[setting] = file_sha256(path)
            read[str(path)] = files[setting]
        spec.build(read_setting_file, SIMULATION_REGISTRIES)
        known = {p.name: p.default for p in listings[0].parameters()}
        given = {**known, **spec.dispatcher_settings}
        words = ("", "None", "none")
        by_clock = str(given.get("limit_s", "")) not in words and str(given.get("effort", "")) in words
        return _CasePolicy(spec, files, read, plugins, by_clock)

    def _add_setting_line_to_errors(self, where: Sequence[str | int], value: object, read: Any) -> Any:
        """Return the result of `read`. Add the setting's line to an error message."""
        try:
            return read()
        except CpschedError as error:
            raise self.tree.make_error(where, value, str(error)) from error


def _axis_key_path(where: Sequence[str | int], axis: str) -> tuple[str, ...]:
    """Return the keys that lead from the location `where` to an axis."""
    return (f"{axis}s",) if where[0] == "grids" else (axis,)


def _expand_windows(schema: str | TraceWindowSchema | JobSequenceSchema) -> list[tuple[str, Part]]:
    """Return each window with its label: `whole`, `days 14-21`, or `jobs 0-999`."""
    if isinstance(schema, JobSequenceSchema):
        n = schema.jobs
        return [(f"jobs {first}-{first + n - 1}", {"first": first, "jobs": n}) for first in schema.first]
    if not isinstance(schema, TraceWindowSchema):
        return [(WHOLE_TRACE, None)]
    parts = [schema.from_day + at * schema.days for at in range(schema.count)]
    return [(f"days {day:g}-{day + schema.days:g}", [day, schema.days]) for day in parts]


def _split_settings(text: str, owner: str) -> tuple[str, dict[str, str]]:
    """Split `NAME SETTING=VALUE ...` into name and settings. Raise `InvalidValue`."""
    if not text.strip():
        raise InvalidValue(owner, text, "must be NAME or NAME SETTING=VALUE ...")
    first, *rest = text.split()
    settings = dict[str, str]()
    for word in rest:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise InvalidValue(owner, text, "must be NAME or NAME SETTING=VALUE ...")
        full = name if name == "overrun" else f"{owner}.{name}"
        if full in settings:
            raise InvalidValue(owner, text, f"must set {name} only once")
        settings[full] = value
    return first, settings


@cache
def _is_randomized(dispatcher: str) -> bool:
    return SEED_SETTING in setting_names(SIMULATION_REGISTRIES.dispatchers.find(dispatcher))


def _add_seed(spec: PolicySpec, seed: int) -> PolicySpec:
    """Return the policy. Add the seed if its dispatcher needs one and has none."""
    if not _is_randomized(spec.dispatcher) or SEED_SETTING in spec.dispatcher_settings:
        return spec
    settings = {**spec.dispatcher_settings, SEED_SETTING: str(seed)}
    return PolicySpec(spec.dispatcher, spec.predictor, settings, spec.predictor_settings, spec.overrun)


def load_stored_study_cases(path: Path, results: Path) -> StudyCases:
    """Read a study from its results folder. Paths are relative to the original file."""
    home = path.absolute().parent
    with suppress(OSError, ValueError, LookupError, TypeError):  # results may be in the study file's folder
        home = Path(json.loads((results / "study.json").read_bytes())["folder"])
    tree = read_yaml_tree(path)
    if tree.content is None:
        raise tree.make_error((), "empty", "must describe a study")
    return _StudyCaseBuilder(tree, tree.to_model(StudyFileSchema), home).build_all_cases()
