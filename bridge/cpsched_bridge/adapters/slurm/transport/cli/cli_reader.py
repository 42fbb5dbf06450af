"""Read Slurm with its own commands, as `SlurmCliTransport` specifies.

The following rules limit most readings to six slurmctld calls:

- Jobs (`squeue`), nodes and reservations are queried in each reading.
- Job details that only `scontrol` shows are queried by number if a few jobs are new or changed in `squeue`. All jobs
  are queried if many have changed, and every `DETAILS_INTERVAL_S` (up to `MAX_DETAILS_INTERVAL_S` if the query takes a
  long time). While array tasks wait, each reading queries all jobs, because squeue may merge these tasks.
- Tasks that squeue hides behind other tasks are queried when scontrol shows that they have changed, and at least every
  `DETAILS_INTERVAL_S`.
- Partitions are queried every `PARTITIONS_INTERVAL_S`, and the configuration every `CONFIG_INTERVAL_S`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cpsched.errors import UnreadableOutput
from cpsched.formatting import format_count
from cpsched.slurm_text.configuration import CONFIG_COMMAND, SlurmConfig, parse_controller_config
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.object_parsing import (
    NODE_DETAILS_COMMAND,
    NODES_COMMAND,
    PARTITIONS_COMMAND,
    RESERVATIONS_COMMAND,
    parse_node,
    parse_nodes,
    parse_partitions,
    parse_reservations,
    split_output,
)
from cpsched.slurm_text.objects import SlurmNode, SlurmPartition, SlurmTopology
from cpsched.slurm_text.option_lists import OptionList, find_unmodelled_options, parse_config
from cpsched_bridge.adapters.slurm.slurm_records import NODE_FILTER_PARAMETER, Record, SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.transport import CONFIG_INTERVAL_S, PARTITIONS_INTERVAL_S
from cpsched_bridge.adapters.slurm.transport.cli import job_list_parsing, scontrol_job_parsing
from cpsched_bridge.adapters.slurm.transport.cli.job_list_parsing import SqueueRow
from cpsched_bridge.adapters.slurm.transport.cli.job_records import CachingJobParser, parse_job
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_job_parsing import (
    DuplicateJobRecordResolver,
    UnparsedScontrolJob,
)
from cpsched_bridge.adapters.slurm.transport.programs import layout_queries
from cpsched_bridge.adapters.slurm.transport.programs.call_limits import (
    AdaptiveIdleTimeout,
    SlurmRpcTokenBucket,
    make_rate_limit_facts,
    parse_rate_limit,
)
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import make_slurm_runner
from cpsched_bridge.adapters.slurm.transport.programs.user_queries import CachingUnixGroupLookup, query_admin_level
from cpsched_bridge.errors import AnswerNotUnderstood, BackendError, BackendTimeout, BackendUnavailable
from cpsched_bridge.users import find_user_name
from cpsched_sim.program_runner import RunningPrograms

DETAILS_INTERVAL_S = 20.0
DETAILS_INTERVAL_FACTOR, MAX_DETAILS_INTERVAL_S = 20, 60.0
"""Factor and maximum for the interval between queries for all jobs.

The interval is the duration of the last query times the factor, and at least `DETAILS_INTERVAL_S`.
"""
MAX_SINGLE_JOB_QUERIES = 50
"""Maximum number of changed jobs that are queried by number. Each query is a slurmctld call."""
CHANGED_JOBS_DIVISOR = 100
"""Inverse of the fraction of changed jobs above which all jobs are queried."""
MAX_SINGLE_JOB_QUERIES_WHILE_SLOW = 500
"""`MAX_SINGLE_JOB_QUERIES` after a query for all jobs failed. Later readings query the remaining jobs."""
MAX_ARRAY_QUERIES = 20
"""Maximum number of arrays queried one by one, used if more jobs appear to be in arrays than one squeue accepts."""
NODE_COUNT_CORRECT_SINCE = (24, 5)
"""First release that reports the correct minimum node count if a task has several CPUs."""
CALLS_PER_READING = 8
"""Number of calls in a reading that queries everything once."""
_VERSION = re.compile(r"(\d{2})\.(\d{2})\.?(\S*)")
_SDIAG_TIME = re.compile(r"^sdiag output at .*\((\d+)\)$", re.MULTILINE)


@dataclass(slots=True)
class _SqueueReading:
    """The jobs that squeue shows, the hidden jobs, and their scontrol records."""

    rows: dict[int, SqueueRow] = field(default_factory=dict)
    shown: dict[int, UnparsedScontrolJob] = field(default_factory=dict)
    twice: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)
    """Numbers of possible jobs that squeue shows only when queried by number."""

    def merged(self) -> set[int]:
        """Return the numbers of common records that squeue may merge with hidden jobs."""
        arrays = {_get_array_number(self.rows[number]) for number in self.hidden if number in self.rows}
        arrays |= {str(self.shown[number].array_id) for number in self.hidden if number in self.shown}
        return {n for n, row in self.rows.items() if "_[" in row.job_array_id and _get_array_number(row) in arrays}


def _get_array_number(row: SqueueRow) -> str:
    """Return the number of a row's array, or its job number if it is not in an array."""
    return row.job_array_id.partition("_")[0]


@contextlib.contextmanager
def translate_unreadable_output() -> Iterator[None]:
    """Raise `AnswerNotUnderstood` for output of Slurm's commands that cannot be parsed."""
    try:
        yield
    except UnreadableOutput as error:
        raise AnswerNotUnderstood(str(error)) from error


@dataclass(slots=True)
class CachingNodeParser:
    """A parser of nodes that does not parse the text of an unchanged node again."""

    _known: dict[str, SlurmNode] = field(default_factory=dict)

    def read(self, printed: str) -> list[SlurmNode]:
        """Return the nodes in `printed`. The state of an unusable node is UNKNOWN."""
        texts = split_output(printed, "NodeName")
        self._known = {text: self._known.get(text) or _parse_usable_node(text) for text in texts}
        return [self._known[text] for text in texts]


def _parse_usable_node(text: str) -> SlurmNode:
    node = slurm_states.mark_unusable_node(parse_node(text))
    cpus = node.effective_cpus or 0
    idle = cpus - (node.allocated_cpus or 0)
    if node.has_unusable_field or idle in (0, cpus):
        return node
    _, *flags = node.state.split("+")
    # scontrol itself prints this, unless the node's state has changed since
    return replace(node, state="+".join(("MIXED", *flags)))


class SlurmCliReader:
    """A reader of Slurm's state that runs Slurm's commands, called from one thread.

    - `deadline_s`: how long slurmctld may be silent. See `AdaptiveIdleTimeout`.
    - `history_deadline_s`: the same for the accounting database.
    - `programs`: starts programs as `ProgramRunner.start` does.
    """

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        programs: Callable[..., RunningPrograms] | None = None,
        budget: SlurmRpcTokenBucket | None = None,
    ) -> None:
        self._deadline_s, self._history_deadline_s = deadline_s, history_deadline_s
        self._idle_timeout = AdaptiveIdleTimeout(deadline_s)
        self._budget = budget or SlurmRpcTokenBucket()
        self._programs = programs or make_slurm_runner(self._budget).start
        self._clock = clock
        self.reading_s = 0.0
        """Wall time of the last reading in seconds, without waiting for the limit on calls."""
        self._version: tuple[int, int] | None = None
        self._clients = ""
        self._jobs = CachingJobParser()
        self._groups = CachingUnixGroupLookup()
        self._duplicates, self._lookup_duplicates = (
            DuplicateJobRecordResolver(self._show_jobs_alone, clock),
            DuplicateJobRecordResolver(self._show_jobs_alone, clock),
        )
        self._cached: dict[str, tuple[float, str]] = {}
        """Arrival time and text of the answers that several readings reuse, by query name."""
        self._nodes = CachingNodeParser()
        self._topologies: tuple[float, dict[str, SlurmTopology]] | None = None
        self._squeued: job_list_parsing.CachingSqueueParser | None = None
        self._before: dict[int, SqueueRow] = {}
        self._shown: dict[int, UnparsedScontrolJob] = {}
        self._twice: set[int] = set()
        """Numbers of the jobs with ambiguous scontrol records. The other jobs' records are in `_shown`."""
        self._all_shown_s: float | None = None
        self._details_period_s = DETAILS_INTERVAL_S
        self._slow_until_s = -math.inf
        """Time until which scontrol is called only for some jobs, because showing all of them took too long."""
        self._hidden_rows: dict[int, tuple[float, UnparsedScontrolJob, SqueueRow]] = {}
        """Query time, scontrol's record at that time, and squeue's row, by number of a task that squeue hides."""
        self._past: tuple[RunningPrograms, str, int] | None = None
        self._past_wait_s = deadline_s

    # ---- calls of SlurmCliTransport

    def read_config(self) -> SlurmConfig:
        """Return the configuration, read at most every `CONFIG_INTERVAL_S` seconds."""
        self._cache_answers(self._run_queries(self._select_due_query("config", CONFIG_COMMAND, CONFIG_INTERVAL_S)))
        return self._get_config()

    def gather_doctor_facts(self) -> Record:
        """Return the doctor's facts.

        If accounting does not answer here, the first `read_accounting` does not wait.
        """
        texts = self._run_queries(
            {
                "config": CONFIG_COMMAND,
                "nodes": NODES_COMMAND,
                "diag": ("sdiag",),
            }
        )
        self._cache_answers(texts)
        with translate_unreadable_output():
            nodes = parse_nodes(texts["nodes"])
        here_s = int(time.time())
        match = _SDIAG_TIME.search(texts["diag"])
        user = find_user_name(os.getuid())
        config = self._get_config()
        facts = {
            "config": config,
            "unmodelled_options": list(find_unmodelled_options(parse_config(texts["config"]))),
            "topology_plugins": layout_queries.list_restricting_topology_plugins(self._get_topologies(config)),
            "user": user,
            "uid": os.getuid(),
            "clock_ahead_s": int(match[1]) - here_s if match else 0,
            "clients": self._read_client_release()[1],
            "pyslurm": "",
            "rate_limit": make_rate_limit_facts(self._budget.limit),
            "node_versions": sorted({node.slurm_version or "" for node in nodes} - {""}),
            **query_admin_level(user),
        }
        if not facts["accounting_answers"]:
            self._past_wait_s = 0.0
        return facts

    def read(self) -> SlurmRecords:
        """Return one reading, in which jobs are read before everything else."""
        self._budget.wait_for_reading(CALLS_PER_READING)
        begin_s = self._clock()
        with self._idle_timeout.track_reading(), translate_unreadable_output():
            records = self._read_cluster()
        self.reading_s = self._clock() - begin_s
        return records

    def _read_cluster(self) -> SlurmRecords:
        release = self._read_client_release()[0]
        self._jobs.counts_one_more = release < NODE_COUNT_CORRECT_SINCE
        found = self._read_squeue_jobs(job_list_parsing.select_squeue_fields(release))
        commands = {"nodes": NODES_COMMAND, **self._select_object_queries()}
        texts = self._query_with_job_details(found, commands)
        self._cache_answers(texts)
        found = self._omit_pending_without_details(found)
        try:
            everything = self._merge_job_details(found, dict(self._shown), set(self._twice))
        except BackendError:
            self._all_shown_s = None  # after any error, query everything again
            raise
        self._before = found
        self._jobs.set_node_filter(self._filters_by_extra())
        jobs = self._jobs.parse(everything.rows, everything.shown, everything.merged())
        return self._make_records(jobs, self._nodes.read(texts["nodes"]), texts["reservations"])

    def _select_object_queries(self) -> dict[str, Sequence[str]]:
        """Return the queries for reservations and, if they are due, for partitions and the configuration."""
        return {
            "reservations": RESERVATIONS_COMMAND,
            **self._select_due_query("partitions", PARTITIONS_COMMAND, PARTITIONS_INTERVAL_S),
            **self._select_due_query("config", CONFIG_COMMAND, CONFIG_INTERVAL_S),
        }

    def _get_config(self) -> SlurmConfig:
        with translate_unreadable_output():
            return parse_controller_config(self._cached["config"][1])

    def _filters_by_extra(self) -> bool:
        return OptionList(self._get_config().scheduler_parameters).has(NODE_FILTER_PARAMETER)

    def _make_records(self, jobs: Sequence[SlurmJob], nodes: Sequence[SlurmNode], reservations: str) -> SlurmRecords:
        """Return one reading with the cached partitions and configuration. `reservations` is scontrol's output."""
        config = self._get_config()
        partitions = parse_partitions(self._cached["partitions"][1])
        now_s = int(time.time())
        return SlurmRecords(
            now_s=now_s,
            nodes=self._add_gpu_use(nodes),
            partitions=partitions,
            reservations=parse_reservations(reservations),
            jobs=slurm_states.mark_unknown_states(jobs, now_s),
            guarded="lua" in (config.job_submit_plugins or ()),
            outside=self._find_nonmember_groups(jobs, partitions),
            topologies=self._get_topologies(config),
        )

    def _add_gpu_use(self, nodes: Sequence[SlurmNode]) -> Sequence[SlurmNode]:
        """Return the nodes with the use of their GPUs, if jobs may share GPUs or nodes have several types."""
        if not any(node.may_share_gpus or node.has_gpu_types for node in nodes):
            return nodes
        details = parse_nodes(self._run_queries({"details": NODE_DETAILS_COMMAND})["details"])
        used = {node.name: (node.used_gres, node.shared_gpus) for node in details}
        found = ((node, *used.get(node.name, (None, None))) for node in nodes)
        return [replace(node, used_gres=gres, shared_gpus=shared) for node, gres, shared in found]

    def read_accounting(self, since_s: int) -> Sequence[SlurmJob]:
        """Return ended jobs. Only the first call waits, for at most `deadline_s` seconds."""
        wait_s, self._past_wait_s = self._past_wait_s, 0.0
        if self._past is None:
            end = job_list_parsing.make_field_terminator()
            asked = self._programs(
                {"sacct": job_list_parsing.build_sacct_command(since_s, end)}, self._history_deadline_s
            )
            self._past = asked, end, since_s
        asked, end, since_s = self._past
        if not asked.wait_for_outputs(wait_s):
            raise BackendTimeout(f"ended jobs: no response yet after {wait_s:g} s")
        self._past = None
        return job_list_parsing.parse_ended_jobs(asked.collect_outputs()["sacct"], end, since_s)

    def read_jobs(self, numbers: Collection[int] | None) -> list[SlurmJob]:
        """Return newly read jobs with these Slurm job ids.

        None selects all jobs. An array's number selects all of its records. The fields of `SCONTROL_ONLY_FIELDS` may be
        unreadable. A job that has left the queue is missing. An array's common record is also missing if it cannot be
        distinguished from forged records.
        """
        if numbers is not None and not numbers:
            return []
        rows = self._read_squeue_rows(
            job_list_parsing.select_squeue_fields(self._read_client_release()[0]), numbers or ()
        )
        found = _SqueueReading(rows)
        if job_list_parsing.has_array_records(rows):
            shown, twice = scontrol_job_parsing.split_job_records(
                self._run_queries({"all": scontrol_job_parsing.ALL_JOBS_COMMAND})["all"]
            )
            found = self._merge_job_details(rows, shown, twice, whole=False)
        merged = found.merged()
        wanted = None if numbers is None else set(numbers)
        jobs = []
        for number, row in found.rows.items():
            if "_[" in row.job_array_id and number not in found.shown:
                continue
            job = parse_job(row, found.shown.get(number), number in merged)
            if "array_id" not in job.unreadable and (wanted is None or not wanted.isdisjoint((job.id, job.array_id))):
                jobs.append(job)
        return jobs

    def close(self) -> None:
        """Stop running programs."""
        if self._past is not None:
            self._past[0].close()
            self._past = None

    # ---- implementation

    def _read_client_release(self) -> tuple[tuple[int, int], str]:
        """Return and cache the release of this host's programs, as numbers and as text."""
        if self._version is None:
            version = self._run_queries({"version": ("squeue", "--version")})["version"]
            found = _VERSION.search(version)
            if found is None:
                raise BackendUnavailable(f"squeue --version: {version.strip()[:60]!r} contains no version")
            self._version, self._clients = (int(found[1]), int(found[2])), found[0]
        return self._version, self._clients

    def _run_queries(self, commands: Mapping[str, Sequence[str]]) -> dict[str, str]:
        return self._start_programs(commands).collect_outputs()

    def _start_programs(
        self, commands: Mapping[str, Sequence[str]], typed: Mapping[str, str] | None = None
    ) -> RunningPrograms:
        """Start programs with limits on the silence and the total time of each program."""
        return self._programs(commands, self._idle_timeout.silence_s, typed, self._idle_timeout.limit_s)

    def _show_jobs_alone(self, numbers: list[int]) -> str | None:
        """Return scontrol's output for these jobs and no others, or None on failure."""
        try:
            return scontrol_job_parsing.strip_prompts(self._start_job_details_query(numbers).collect_outputs()["apart"])
        except BackendError:
            return None

    def _select_due_query(self, name: str, command: Sequence[str], period_s: float) -> dict[str, Sequence[str]]:
        is_due = name not in self._cached or self._clock() - self._cached[name][0] >= period_s
        return {name: command} if is_due else {}

    def _cache_answers(self, texts: Mapping[str, str]) -> None:
        now_s = self._clock()
        self._cached |= {name: (now_s, texts[name]) for name in ("partitions", "config") if name in texts}
        if "config" in texts:
            self._budget.set_limit(parse_rate_limit(texts["config"], os.getuid()))

    def _read_squeue_jobs(self, fields: Sequence[str]) -> dict[int, SqueueRow]:
        """Return all jobs that squeue shows, reusing the row of an unchanged job."""
        self._squeued = self._squeued or job_list_parsing.CachingSqueueParser(fields)
        end = job_list_parsing.make_field_terminator()
        printed = self._run_queries({"jobs": job_list_parsing.build_squeue_command(fields, end)})["jobs"]
        return job_list_parsing.index_rows_by_job_number(self._squeued.read(printed, end))

    def _query_with_job_details(
        self, found: Mapping[int, SqueueRow], commands: dict[str, Sequence[str]]
    ) -> dict[str, str]:
        """Return the answers to `commands`, and query scontrol for new or changed jobs."""
        fresh = [
            number
            for number, row in found.items()
            if not job_list_parsing.is_job_row_unchanged(self._before.get(number), row)
        ]
        few = len(fresh) <= min(MAX_SINGLE_JOB_QUERIES, len(found) // CHANGED_JOBS_DIVISOR)
        now_s = self._clock()
        if now_s < self._slow_until_s:
            return self._query_some_job_details(found, fresh, commands)
        old = self._all_shown_s is None or now_s - self._all_shown_s >= self._details_period_s
        if not found or (few and not old and not job_list_parsing.has_pending_arrays(found)):
            with contextlib.ExitStack() as asked:
                apart = self._start_job_details_query(fresh) if fresh else None
                if apart is not None:
                    asked.callback(apart.close)
                texts = self._run_queries(commands)
                if apart is None or self._store_job_details(apart, fresh):
                    self._shown = {number: self._shown[number] for number in found if number in self._shown}
                    self._twice &= found.keys()
                    return texts
            commands = {}
        else:
            texts = {}
        try:
            texts |= self._run_queries({**commands, "details": scontrol_job_parsing.ALL_JOBS_COMMAND})
        except BackendTimeout:
            self._slow_until_s = self._clock() + MAX_DETAILS_INTERVAL_S
            raise
        self._shown, self._twice = scontrol_job_parsing.split_job_records(texts["details"])
        self._all_shown_s = now_s
        took_s = self._clock() - now_s
        self._details_period_s = min(MAX_DETAILS_INTERVAL_S, max(DETAILS_INTERVAL_S, DETAILS_INTERVAL_FACTOR * took_s))
        return texts

    def _query_some_job_details(
        self, found: Mapping[int, SqueueRow], fresh: Sequence[int], commands: dict[str, Sequence[str]]
    ) -> dict[str, str]:
        """Return the answers to `commands`, and query scontrol for some `fresh` jobs.

        This replaces a query for all jobs, which took too long. Jobs that have nodes come first, then jobs that were
        never shown, oldest first. The queries stop after `AdaptiveIdleTimeout.silence_s` seconds.
        """
        placed = [number for number in fresh if found[number].state in slurm_states.OCCUPYING_STATES]
        unknown = sorted(number for number in fresh if number not in self._shown and number not in self._twice)
        wanted = list(dict.fromkeys([*placed, *unknown]))[:MAX_SINGLE_JOB_QUERIES_WHILE_SLOW]
        texts = self._run_queries(commands)
        until_s = self._clock() + self._idle_timeout.silence_s
        for at in range(0, len(wanted), MAX_SINGLE_JOB_QUERIES):
            if self._clock() > until_s:
                break
            part = wanted[at : at + MAX_SINGLE_JOB_QUERIES]
            self._store_job_details(self._start_job_details_query(part), part, whole=False)
        self._shown = {number: self._shown[number] for number in found if number in self._shown}
        self._twice &= found.keys()
        return texts

    def _omit_pending_without_details(self, found: dict[int, SqueueRow]) -> dict[int, SqueueRow]:
        """Return the rows, omitting pending jobs that scontrol has not shown yet.

        Later readings query the omitted jobs, because scontrol is too slow to show them now.
        """
        if self._clock() >= self._slow_until_s:
            return found
        pending = slurm_states.PENDING
        known = self._shown.keys() | self._twice
        return {number: row for number, row in found.items() if number in known or row.state != pending}

    def _start_job_details_query(self, numbers: Collection[int]) -> RunningPrograms:
        return self._start_programs(
            {"apart": scontrol_job_parsing.INTERACTIVE_COMMAND},
            {"apart": scontrol_job_parsing.format_show_job_input(numbers)},
        )

    def _store_job_details(self, apart: RunningPrograms, numbers: Collection[int], whole: bool = True) -> bool:
        """Store only these jobs' records. Any job may forge records of other jobs.

        Return False if scontrol does not show all of them, for example because a job has left the queue. With `whole`,
        nothing is stored in that case.
        """
        try:
            shown, twice = scontrol_job_parsing.split_job_records(
                scontrol_job_parsing.strip_prompts(apart.collect_outputs()["apart"])
            )
        except BackendError:
            return False
        if whole and not all(number in shown or number in twice for number in numbers):
            return False
        self._twice = (self._twice - set(numbers)) | twice.intersection(numbers)
        for number in numbers:
            self._shown.pop(number, None)
        self._shown |= {number: shown[number] for number in numbers if number in shown}
        return True

    def _read_squeue_rows(self, fields: Sequence[str], numbers: Collection[int]) -> dict[int, SqueueRow]:
        parts = job_list_parsing.split_into_query_chunks(numbers) or [[]]
        end = job_list_parsing.make_field_terminator()
        asked = {str(at): job_list_parsing.build_squeue_command(fields, end, part) for at, part in enumerate(parts)}
        try:
            texts = self._run_queries(asked)
        except BackendUnavailable as error:
            if len(numbers) == 1 and "Invalid job id" in str(error):
                return {}  # squeue queries a single job differently, and fails if slurmctld has purged it
            raise
        found: dict[int, SqueueRow] = {}
        for text in texts.values():  # an array may be in several parts
            found |= job_list_parsing.index_rows_by_job_number(
                job_list_parsing.CachingSqueueParser(fields).read(text, end)
            )
        return found

    def _merge_job_details(
        self, rows: dict[int, SqueueRow], shown: dict[int, UnparsedScontrolJob], twice: set[int], whole: bool = True
    ) -> _SqueueReading:
        """Return the rows with scontrol's records, and with the hidden waiting tasks.

        Raise `AnswerNotUnderstood` if only squeue shows a job that waits or runs. scontrol was called later, so its
        answer must be incomplete. If `whole` is False, `rows` may lack jobs, so this is not checked.
        """
        arrays = {int(_get_array_number(row)) for row in rows.values() if "_[" in row.job_array_id}
        hidden = {number for number, one in shown.items() if number not in rows and one.array_id in arrays}
        hidden |= {number for number in twice if number not in rows and arrays}
        known = self._reuse_hidden_task_rows(hidden, shown) if whole else {}
        asked_for = hidden - known.keys()
        if len(asked_for) > job_list_parsing.MAX_JOBS_PER_QUERY:
            asked_for = self._find_job_numbers_in_arrays(arrays, asked_for)
            hidden = asked_for | known.keys()
        rows = {**rows, **known}
        if asked_for:
            fields = job_list_parsing.select_squeue_fields(self._read_client_release()[0])
            unseen = self._read_squeue_rows(fields, asked_for)
            rows |= {number: row for number, row in unseen.items() if number not in rows}
        if whole:
            now_s = self._clock()
            fresh = {n: (now_s, shown[n], rows[n]) for n in asked_for if n in rows and n in shown}
            self._hidden_rows = {n: self._hidden_rows[n] for n in known} | fresh
        twice &= rows.keys()
        if whole:
            alive = {slurm_states.PENDING, *slurm_states.OCCUPYING_STATES}
            lost = [n for n, row in rows.items() if n not in shown and n not in twice and row.state in alive]
            if lost:
                raise AnswerNotUnderstood(
                    f"scontrol show job: missing {format_count(len(lost), 'job')} listed by squeue, e.g. {lost[0]}"
                )
            shown |= self._duplicates.resolve(twice, rows)
        else:
            shown |= self._lookup_duplicates.resolve(twice, rows)
        return _SqueueReading(rows, shown, twice, hidden)

    def _reuse_hidden_task_rows(
        self, hidden: Collection[int], shown: Mapping[int, UnparsedScontrolJob]
    ) -> dict[int, SqueueRow]:
        """Return the known rows of hidden tasks whose scontrol records are unchanged."""
        found: dict[int, SqueueRow] = {}
        for number in hidden:
            asked_s, record, row = self._hidden_rows.get(number, (0.0, None, None))
            if row is not None and record == shown.get(number) and self._clock() - asked_s < DETAILS_INTERVAL_S:
                found[number] = row
        return found

    def _find_job_numbers_in_arrays(self, arrays: Collection[int], numbers: Collection[int]) -> set[int]:
        """Return the numbers that belong to these arrays.

        Each array is queried alone, because it can then forge only records of its own tasks. The result contains at
        most `MAX_JOBS_PER_QUERY` numbers per array.
        """
        found: set[int] = set()
        for array in sorted(arrays)[:MAX_ARRAY_QUERIES]:
            printed = self._show_jobs_alone([array])
            shown = scontrol_job_parsing.split_job_records(printed)[0] if printed is not None else {}
            own = sorted(number for number, one in shown.items() if number in numbers and one.array_id == array)
            found.update(own[: job_list_parsing.MAX_JOBS_PER_QUERY])
        return found

    def _get_topologies(self, config: SlurmConfig) -> dict[str, SlurmTopology]:
        """Return the topologies, queried every `QUERY_INTERVAL_S` seconds."""
        now_s = self._clock()
        if self._topologies is None or now_s - self._topologies[0] >= layout_queries.QUERY_INTERVAL_S:
            is_named = self._read_client_release()[0] >= layout_queries.TOPOCONF_SINCE
            named = self._run_queries({"named": layout_queries.TOPOCONF_COMMAND})["named"] if is_named else ""
            self._topologies = now_s, layout_queries.read_topologies(config, named, self._query_or_empty)
        return self._topologies[1]

    def _query_or_empty(self, command: Sequence[str]) -> str:
        try:
            return self._run_queries({"shown": command})["shown"]
        except BackendError:
            return ""

    def _find_nonmember_groups(
        self, jobs: Sequence[SlurmJob], partitions: Sequence[SlurmPartition]
    ) -> dict[str, list[str]]:
        """Return, by user, the groups in AllowGroups to which the user does not belong.

        The result includes only users with pending jobs and groups with known members.
        """
        allowed = {name for partition in partitions for name in partition.allowed_groups or () if name != "ALL"}
        if not allowed:
            return {}
        users = {job.user_name for job in jobs if job.state == slurm_states.PENDING and job.user_name}
        return self._groups.find_nonmember_groups(users, allowed)
