"""Recordings of real Slurm clusters, replayed through the real readers and the real translation.

A recording holds the outputs of all commands that the bridge ran on a live cluster, and the objects that pyslurm
returned there. `observe` replays it: a stand-in for the program runner answers each command from the recording. Time,
users and groups are those of the recorded cluster. `describe` turns each observation into plain values.

    python -m tests.slurm.record_cluster        # record a running test cluster
    python -m tests.recordings                  # write the expected observations of all recordings again
"""

from __future__ import annotations

import dataclasses
import grp
import json
import lzma
import os
import pwd
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import yaml

from cpsched.model import Cluster, PendingReason, Request
from cpsched.slurm_text.object_parsing import NODE_DETAILS_COMMAND, NODES_COMMAND
from cpsched_bridge.adapters.slurm.background_queries import (
    SITE_POLICY_COMMANDS,
    BackgroundCommandOutput,
    PeriodicSitePolicyReader,
)
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.transport.cli import job_records
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.programs import slurm_programs
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import interpret_result
from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_worker
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import PyslurmReader
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport
from cpsched_bridge.backoff_groups import BackoffGroupKey
from cpsched_bridge.ports import Observation, PreemptionOptions
from cpsched_sim.program_runner import ProgramResult
from tests.unit.bridge.adapters.slurm.transport.cli.standin import Answers

FOLDER = Path(__file__).parent / "data" / "slurm" / "recordings"
FIELD_END = "\x1e"
"""Replacement in a recording for the random word that ends each field."""
MOMENT_S = 1000.0
"""Time between two moments on the readers' clock, so that each moment reads everything again."""
_RANDOM_WORD = re.compile(r"~[\w-]{11}(?![\w-])")
_TRES = ("requested_tres", "allocated_tres", "tres_per_task", "tres_per_socket")


class Answer(NamedTuple):
    """The result of one command."""

    status: int
    printed: str
    complaint: str


@dataclasses.dataclass
class Moment:
    """One reading: the controller's time, the answers by command line, and pyslurm's objects, if recorded."""

    now_s: int
    answers: dict[str, Answer]
    pyslurm: dict[str, Any] | None = None

    def answer(self, command: Sequence[str], typed: str = "") -> Answer:
        """Return the recorded answer. A squeue command may select some of the recorded columns, in any order.

        The clusters were recorded before the bridge read the details of nodes, and the total resources of pyslurm's
        jobs.
        """
        key, columns, end = normalize(command, typed)
        if key == " ".join(NODE_DETAILS_COMMAND) and key not in self.answers:
            key = " ".join(NODES_COMMAND)
        if "tres-per-job: " in key and key not in self.answers:
            return Answer(1, "", "")
        if key not in self.answers:
            raise AssertionError(f"not in the recording: {key}")
        status, printed, complaint = self.answers[key]
        if columns:
            recorded, *rows = printed.split(f"{FIELD_END}\n")
            names = recorded.split(FIELD_END)
            found = [dict(zip(names, row.split(FIELD_END), strict=True)) for row in rows[:-1]]
            printed = "".join(FIELD_END.join(row[name] for name in columns) + f"{FIELD_END}\n" for row in found)
        return Answer(status, printed.replace(FIELD_END, end), complaint)

    def record(self, command: Sequence[str], typed: str, answer: Answer) -> None:
        """Store the answer of a command. The first line of squeue's answer then names its columns."""
        key, columns, end = normalize(command, typed)
        printed = answer.printed.replace(end, FIELD_END) if end else answer.printed
        if columns:
            printed = FIELD_END.join(columns) + f"{FIELD_END}\n{printed}"
        self.answers[key] = answer._replace(printed=printed)


Ask = Callable[[Moment, Sequence[str], str], Answer]
"""A function that returns the answer to a command line and its standard input at a moment."""


def normalize(command: Sequence[str], typed: str) -> tuple[str, list[str], str]:
    """Return a command's key in the recording, squeue's columns, and the random word that ends each field."""
    words, columns = list(command), []
    found = _RANDOM_WORD.search(" ".join(words))
    end = found[0] if found is not None else ""
    if "--Format" in words:
        columns = [column.removesuffix(f":{end}") for column in words.pop().split(",")]
    key = shlex.join(word.replace(end, "~") if end else word for word in words)
    return f"{key} <<< {typed.encode('unicode_escape').decode()}" if typed else key, columns, end


@dataclasses.dataclass
class Recording:
    """The readings of one cluster, with its users (uid, name, groups) and groups (gid, name)."""

    release: str
    users: dict[str, Any]
    groups: dict[str, int]
    moments: list[Moment]

    @classmethod
    def load(cls, path: Path) -> Recording:
        content = json.loads(lzma.decompress(path.read_bytes()))
        moments = [
            Moment(each["now_s"], {key: Answer(*answer) for key, answer in each["answers"].items()}, each["pyslurm"])
            for each in content.pop("moments")
        ]
        return cls(**content, moments=moments)

    def save(self, path: Path) -> None:
        content = dataclasses.asdict(self)
        path.write_bytes(lzma.compress(json.dumps(content, sort_keys=True).encode(), preset=9 | lzma.PRESET_EXTREME))

    @contextmanager
    def as_host(self) -> Iterator[None]:
        """Give this process the users and groups of the recorded cluster."""
        by_uid = {int(each["uid"]): name for name, each in self.users.items()}

        def getpwuid(uid: int) -> SimpleNamespace:
            return SimpleNamespace(pw_name=by_uid[uid])

        def getpwnam(name: str) -> SimpleNamespace:
            return SimpleNamespace(pw_gid=self.users[name]["groups"][0])

        with ExitStack() as patches:
            patches.enter_context(patch.object(pwd, "getpwuid", getpwuid))
            patches.enter_context(patch.object(pwd, "getpwnam", getpwnam))
            patches.enter_context(patch.object(grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=self.groups[name])))
            patches.enter_context(patch.object(os, "getgrouplist", lambda name, _: self.users[name]["groups"]))
            patches.enter_context(patch.object(os, "getuid", lambda: self.users["cpsched"]["uid"]))
            patches.enter_context(patch.object(job_records, "look_up_user_name", lambda uid: by_uid.get(uid, str(uid))))
            yield


# ------------------------------------------------------------------------------------------------------------ replay


Run = Callable[[Sequence[str], str], Answer]


class AnsweredQuery:
    """A stand-in for `BackgroundCommandQuery` with the commands of the site's policy."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._is_running = False

    def start(self) -> None:
        self._is_running = True

    def collect_output(self, wait: bool = False) -> BackgroundCommandOutput | None:
        if not self._is_running:
            return None
        self._is_running = False
        texts, failures = {}, {}
        for name, alternatives in SITE_POLICY_COMMANDS.items():
            answers = [self._run(command, "") for command in alternatives]
            printed = [answer.printed for answer in answers if answer.status == 0]
            if printed:
                texts[name] = printed[0]
            else:
                failures[name] = answers[-1].complaint
        return BackgroundCommandOutput(texts, failures)

    def close(self) -> None:
        pass


class PyslurmModule:
    """A stand-in for the module pyslurm, with the objects of one moment at a time."""

    __version__ = "recorded"

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        self.Jobs, self.Nodes = (SimpleNamespace(load=partial(self._load, name)) for name in ("jobs", "nodes"))

    def _load(self, name: str) -> dict[int, SimpleNamespace]:
        make = {"jobs": job_to_object}.get(name, lambda record: SimpleNamespace(**record))
        return {at: make(record) for at, record in enumerate(self.content[name])}


def job_to_object(record: dict[str, Any]) -> SimpleNamespace:
    """Return a recorded job with attributes, its trackable resources as objects again."""
    changed = {name: _to_tres(record[name]) for name in _TRES if record.get(name)}
    return SimpleNamespace(**{**record, **changed})


def _to_tres(amounts: dict[str, Any]) -> SimpleNamespace:
    named = {name: SimpleNamespace(count=a["count"]) for name, a in amounts.items() if name in ("cpu", "mem", "node")}
    gres = {name: SimpleNamespace(count=a["count"]) for name, a in amounts.get("gres", {}).items()}
    return SimpleNamespace(**{"cpu": None, "mem": None, "node": None, **named}, gres=gres)


class ReadingClient:
    """A stand-in for the parent's side of the pyslurm child, which answers in this process."""

    starts = 0

    def __init__(self, module: PyslurmModule) -> None:
        self._calls = pyslurm_worker.make_calls(module)

    def call(self, name: str, deadline_s: float, **arguments: Any) -> Any:
        return json.loads(json.dumps(self._calls[name](**arguments)))

    def not_ready_reason(self) -> None:
        return None

    def close(self) -> None:
        pass


class Replay:
    """A backend with one transport, which reads one moment after the other. `ask` answers its commands."""

    def __init__(self, ask: Ask, transport: str) -> None:
        self.clock_s = 0.0
        self.module = PyslurmModule()
        self._ask = ask
        self._moment = Moment(0, {})
        reader = PeriodicSitePolicyReader(AnsweredQuery(self._run), lambda: self.clock_s)
        self.backend = SlurmBackend(self._make_transport(transport), reader)
        self.backend.preemption_options = PreemptionOptions()

    def _run(self, command: Sequence[str], typed: str) -> Answer:
        return self._ask(self._moment, command, typed)

    def _make_transport(self, transport: str) -> SlurmCliTransport:
        def start(
            commands: Mapping[str, Sequence[str]], deadline_s: float, typed: Mapping[str, str] | None = None, *_: float
        ) -> Answers:
            answers = Answers({})
            for name, command in commands.items():
                status, answers.found[name], complaint = self._run(command, (typed or {}).get(name, ""))
                result = ProgramResult(" ".join(command[:3]), complaint, answers.found[name], status)
                answers.error = answers.error or interpret_result(result)
            return answers

        how: dict[str, Any] = {"clock": lambda: self.clock_s, "programs": start}
        if transport == "pyslurm":
            client: Any = ReadingClient(self.module)
            return PyslurmTransport(reader=PyslurmReader(client, **how))
        return SlurmCliTransport(reader=SlurmCliReader(**how))

    def read(self, moment: Moment) -> dict[str, Any]:
        """Return the description of the observation, and at the first moment of the ended jobs in accounting."""

        def run(command: list[str], timeout_s: float) -> ProgramResult:
            status, printed, complaint = self._run(command, "")
            return ProgramResult(" ".join(command), complaint, printed, status)

        self._moment, self.module.content = moment, moment.pyslurm or {}
        with (
            patch("time.time", lambda: float(moment.now_s)),
            patch("time.monotonic", lambda: self.clock_s),
            patch.object(slurm_programs, "_RUNNER", SimpleNamespace(run=run)),
        ):
            history = self.backend.read_history() if self.clock_s == 0.0 else []
            observation = self.backend.observe()
        self.clock_s += MOMENT_S
        found = describe(observation)
        if history:
            found["history"] = _by_job(history, observation)
        return found


def observe(recording: Recording, transport: str) -> list[dict[str, Any]]:
    """Return the description of each moment, read with `cli` or `pyslurm`."""
    replay = Replay(Moment.answer, transport)
    with recording.as_host():
        return [replay.read(moment) for moment in recording.moments]


# ------------------------------------------------------------------------------------------------------- description


def describe(seen: Observation) -> dict[str, Any]:
    """Return an observation as plain values: nodes by name, jobs by id and name, limits by their text."""
    found = _fields(
        seen, seen, ("cluster", "free", "pending", "running", "ended", "unmanaged", "limits", "preemptions")
    )
    found["nodes"] = _describe_nodes(seen)
    found["node_sets"] = {
        " and ".join(map(str, parts)) or name: _join_nodes(members.nonzero()[0].tolist(), seen)
        for name, parts, members in zip(
            seen.cluster.node_set_names,
            seen.cluster.node_set_parts or ((),) * len(seen.cluster.node_sets),
            seen.cluster.node_sets,
            strict=True,
        )
    }
    for name in ("pending", "running", "ended"):
        found[name] = _by_job(getattr(seen, name), seen)
    found["unmanaged"] = {f"{each.job_id} {each.label}": _plain(each, seen) for each in seen.unmanaged}
    if seen.limits is not None:
        for each in seen.pending:
            standing, used = seen.limits.standings[each.job.id], seen.limits.used
            checks = [check.describe(used[check.counter]) for check in standing.checks]
            barred = [f"never: {standing.barred}"] if standing.barred is not None else []
            found["pending"][_key(each)]["limits"] = [*barred, *checks]
    found["preemptions"] = {_key(each.pending): _plain(each.victims, seen) for each in seen.preemptions}
    return found


def _describe_nodes(seen: Observation) -> dict[str, str]:
    cluster = seen.cluster
    weights = np.zeros(cluster.size, int) if cluster.weights is None else cluster.weights
    leaves = np.zeros(cluster.size, int) if cluster.leaf_switches is None else cluster.leaf_switches
    return {
        name: f"{_amounts(free, cluster)} of {_amounts(capacity, cluster)}, weight {weight}, leaf {leaf}"
        for name, free, capacity, weight, leaf in zip(
            cluster.node_names, seen.free, cluster.capacity, weights, leaves, strict=True
        )
    }


def _by_job(jobs: Sequence[Any], seen: Observation) -> dict[str, Any]:
    return {_key(each): _plain(each, seen) for each in jobs}


def _key(each: Any) -> str:
    return f"{getattr(each, 'label', '') or each.job.id} {each.job.name}"


def _fields(value: Any, seen: Observation, omitted: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    found = {}
    for each in dataclasses.fields(value):
        item = getattr(value, each.name)
        make_default: Any = each.default_factory
        default = each.default if make_default is dataclasses.MISSING else make_default()
        if each.init and each.name not in omitted and (default is dataclasses.MISSING or item != default):
            describe_item = _SPECIAL_FIELDS.get(each.name, _plain)
            found[each.name] = describe_item(item, seen)
    return found


def _describe_placement(placement: Sequence[tuple[int, int]], seen: Observation) -> str:
    return " ".join(f"{seen.cluster.node_names[node]}:{units}" for node, units in placement)


def _describe_groups(groups: Sequence[BackoffGroupKey], seen: Observation) -> list[str]:
    return [" ".join((kind, *parts)) for kind, parts in groups]


def _join_nodes(nodes: Sequence[int], seen: Observation) -> str:
    return " ".join(seen.cluster.node_names[node] for node in nodes)


_SPECIAL_FIELDS = {"placement": _describe_placement, "groups": _describe_groups, "nodes": _join_nodes}


def _plain(value: Any, seen: Observation) -> Any:
    match value:
        case PendingReason():
            return " ".join(map(str, (value.code.value, *value.arguments)))
        case Request():
            return _describe_request(value, seen.cluster)
        case Enum():
            return value.value
        case Mapping():
            return {str(key): _plain(item, seen) for key, item in value.items()}
        case tuple() | list():
            return [_plain(item, seen) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return _fields(value, seen)
        case _:
            return value


def _describe_request(request: Request, cluster: Cluster) -> str:
    members = cluster.node_sets[request.node_set].nonzero()[0].tolist()
    flags = [name for name in ("distinct", "exclusive") if getattr(request, name)]
    words = [f"{request.units} x {_amounts(request.per_unit, cluster)}", *flags]
    return f"{' '.join(words)} on {' '.join(cluster.node_names[node] for node in members) or 'no node'}"


def _amounts(amounts: Sequence[int], cluster: Cluster) -> str:
    return " ".join(f"{name}={amount}" for name, amount in zip(cluster.resources, amounts, strict=True) if amount)


def expect(recording: Recording) -> dict[str, Any]:
    """Return what is expected of a recording: each observation by text, and the fields that pyslurm shows else."""
    by_text = observe(recording, "cli")
    found = {f"moment {at}": seen for at, seen in enumerate(by_text, start=1)}
    if all(moment.pyslurm is not None for moment in recording.moments):
        for at, (text, library) in enumerate(zip(by_text, observe(recording, "pyslurm"), strict=True), start=1):
            found[f"pyslurm in moment {at}"] = compare(text | {"history": None}, library | {"history": None})
    return found


def compare(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `found` that differ from the expected ones, by path; None if missing."""
    first, second = dict(_flatten(expected)), dict(_flatten(found))
    paths = sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
    return {path: second.get(path) for path in paths}


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, item in value.items():
        yield from _flatten(item, f"{path}/{key}" if path else key)


def expected_path(path: Path) -> Path:
    """Return the file with the expected observations of a recording."""
    return path.with_name(path.name.replace(".json.xz", ".yaml"))


def main() -> None:
    for path in sorted(FOLDER.glob("*.json.xz")):
        found = expect(Recording.load(path))
        text = yaml.safe_dump(found, sort_keys=False, width=160, allow_unicode=True, default_flow_style=None)
        expected_path(path).write_text(text)
        print(f"{expected_path(path).name}: {len(text.splitlines())} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
