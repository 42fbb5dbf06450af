"""Read Slurm with its own commands, as `SlurmTransport` specifies.

These intervals limit most readings to at most six slurmctld calls:

- Jobs (`squeue`), nodes and reservations are queried in each reading.
- Job details that only `scontrol` shows are queried by number if a few jobs are new or changed in `squeue`. All jobs
  are queried if many have changed, every `DETAILS_INTERVAL_S` (up to `DETAILS_MOST_S` if the query takes long), and in
  each reading while array tasks wait, which squeue may merge.
- Tasks that squeue hides behind others are queried when scontrol shows that they changed, and at least every
  `DETAILS_INTERVAL_S`.
- Partitions are queried every `PARTITIONS_S`, and the configuration every `CONFIG_S`. A change of the submit plugin,
  which requires a reconfiguration or a restart of slurmctld, may go unnoticed for that long.
"""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.formatting import format_count
from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.transport.cli import (
    sacct,
    scontrol_job,
    scontrol_objects,
    slurm_value_parsers,
    squeue,
)
from cpsched_bridge.adapters.slurm.transport.cli.ambiguous_jobs import AmbiguousJobResolver
from cpsched_bridge.adapters.slurm.transport.cli.job_records import SlurmJobRecordBuilder
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_job import UnparsedScontrolJob
from cpsched_bridge.adapters.slurm.transport.cli.slurm_programs import SlurmPrograms
from cpsched_bridge.adapters.slurm.transport.cli.squeue import Row
from cpsched_bridge.adapters.slurm.transport.cli.stall_timeout import AdaptiveIdleTimeout
from cpsched_bridge.adapters.slurm.transport.programs import topology
from cpsched_bridge.adapters.slurm.transport.programs.call_budget import (
    SlurmRpcTokenBucket,
    count_calls,
    parse_rate_limit,
    rate_limit_facts,
)
from cpsched_bridge.adapters.slurm.transport.programs.privilege import query_privilege
from cpsched_bridge.adapters.slurm.transport.programs.unix_groups import UnixGroupLookup
from cpsched_bridge.errors import AnswerNotUnderstood, BackendError, BackendTimeout, BackendUnavailable

DETAILS_INTERVAL_S = 20.0
DETAILS_SHARE, DETAILS_MOST_S = 20, 60.0
"""If scontrol takes long to show all jobs, it is called less often, but at least once a minute."""
PARTITIONS_S = 15.0
CONFIG_S = 15.0
MOST_APART = 50
"""Maximum number of changed jobs that are queried by number; each is a slurmctld call."""
SHARE_APART = 100
"""At most one in this many jobs is queried by number; otherwise all jobs are queried together."""
MOST_APART_WHILE_SLOW = 500
"""Maximum number after a query for all jobs failed; later readings query the jobs that remain unknown."""
MOST_ARRAYS = 20
"""Maximum number of arrays queried one by one, if more jobs claim to be in arrays than one squeue accepts."""
NODES_COUNTED_RIGHT = (24, 5)
"""First release that reports the correct minimum number of nodes of a waiting job with any CPUs per task."""
READING_CALLS = 8
"""Number of calls of a reading that queries everything once."""
_VERSION = re.compile(r"(\d{2})\.(\d{2})\.?(\S*)")
_DIAG_S = re.compile(r"^sdiag output at .*\((\d+)\)$", re.MULTILINE)


@dataclass(slots=True)
class _Rows:
    """The jobs that squeue shows, the hidden jobs, and their scontrol records."""

    rows: dict[int, Row] = field(default_factory=dict)
    shown: dict[int, UnparsedScontrolJob] = field(default_factory=dict)
    twice: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)
    """Numbers of jobs that squeue shows only when queried by number, if they exist."""

    def merged(self) -> set[int]:
        """Return the numbers of common records that squeue may merge with hidden jobs."""
        arrays = {_array(self.rows[number]) for number in self.hidden if number in self.rows}
        arrays |= {str(self.shown[number].array_id) for number in self.hidden if number in self.shown}
        return {n for n, row in self.rows.items() if "_[" in row["JobArrayID"] and _array(row) in arrays}


def _array(row: Row) -> str:
    """Return the number of a row's array, or its job number if it is not in an array."""
    return row["JobArrayID"].partition("_")[0]


class SlurmCliReader:
    """A reader of Slurm that runs its commands; it is called from one thread.

    - `deadline_s`: how long slurmctld may be silent, see `AdaptiveIdleTimeout`.
    - `history_deadline_s`: the same for the accounting database.
    - `programs`: starts programs as `SlurmPrograms` does.
    """

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        programs: Callable[..., SlurmPrograms] = SlurmPrograms,
        budget: SlurmRpcTokenBucket | None = None,
    ) -> None:
        self._programs = programs
        self._deadline_s, self._history_deadline_s = deadline_s, history_deadline_s
        self._patience = AdaptiveIdleTimeout(deadline_s)
        self._budget = budget or SlurmRpcTokenBucket()
        self._clock = clock
        self._version: tuple[int, int] | None = None
        self._clients = ""
        self._jobs = SlurmJobRecordBuilder()
        self._groups = UnixGroupLookup()
        self._suspects, self._looked_suspects = (
            AmbiguousJobResolver(self._apart, clock),
            AmbiguousJobResolver(self._apart, clock),
        )
        self._kept: dict[str, tuple[float, str]] = {}
        """Answers that several readings reuse, and the times when they arrived."""
        self._nodes = scontrol_objects.NodeRecordBuilder()
        self._topologies: tuple[float, dict[str, Record]] | None = None
        self._squeued: squeue.SqueueRecordParser | None = None
        self._before: dict[int, Row] = {}
        self._shown: dict[int, UnparsedScontrolJob] = {}
        self._twice: set[int] = set()
        """scontrol's records for the jobs in `_before`, and the numbers with several records."""
        self._all_shown_s: float | None = None
        self._details_period_s = DETAILS_INTERVAL_S
        self._slow_until_s = -math.inf
        """Time until which scontrol is called only for some jobs, because showing all of them took too long."""
        self._unseen: dict[int, tuple[float, UnparsedScontrolJob, Row]] = {}
        """By number of a task that squeue hides: the query time, scontrol's record at that time, and the row."""
        self._past: tuple[SlurmPrograms, str, int] | None = None
        self._past_wait_s = deadline_s

    # ---- calls of SlurmTransport

    def read_config(self) -> Record:
        """Return the configuration; reuse the last one read if it is at most `CONFIG_S` old."""
        self._keep(self._ask(self._due("config", scontrol_objects.CONFIG, CONFIG_S)))
        return scontrol_objects.parse_config(self._kept["config"][1])

    def gather_facts(self) -> Record:
        """Return the doctor's facts.

        If accounting does not answer here, the first `read_accounting` does not wait.
        """
        texts = self._ask({"config": scontrol_objects.CONFIG, "nodes": scontrol_objects.NODES, "diag": ("sdiag",)})
        self._keep(texts)
        here_s = int(time.time())
        told = _DIAG_S.search(texts["diag"])
        user = pwd.getpwuid(os.getuid()).pw_name
        config = scontrol_objects.parse_config(texts["config"])
        facts = {
            "config": config,
            "topology_plugins": topology.list_deciding_plugins(self._topologies_now(config)),
            "user": user,
            "uid": os.getuid(),
            "clock_ahead_s": int(told[1]) - here_s if told else 0,
            "clients": self._release()[1],
            "pyslurm": "",
            "rate_limit": rate_limit_facts(self._budget.limit),
            "node_versions": sorted(
                {node["slurm_version"] or "" for node in scontrol_objects.parse_nodes(texts["nodes"])} - {""}
            ),
            **query_privilege(user),
        }
        if not facts["accounting_answers"]:
            self._past_wait_s = 0.0
        return facts

    def read(self) -> SlurmRecords:
        """Return one reading, in which jobs are read before everything else."""
        self._budget.wait_for_reading(READING_CALLS)
        with self._patience.track_reading():
            return self._read()

    def _read(self) -> SlurmRecords:
        release = self._release()[0]
        self._jobs.counts_one_more = release < NODES_COUNTED_RIGHT
        found = self._jobs_now(squeue.select_fields(release))
        around: dict[str, Sequence[str]] = {
            "nodes": scontrol_objects.NODES,
            "reservations": scontrol_objects.RESERVATIONS,
        }
        around |= self._due("partitions", scontrol_objects.PARTITIONS, PARTITIONS_S)
        around |= self._due("config", scontrol_objects.CONFIG, CONFIG_S)
        texts = self._ask_with_details(found, around)
        self._keep(texts)
        found = self._known_enough(found)
        try:
            everything = self._with_details(found, dict(self._shown), set(self._twice))
        except BackendError:
            self._all_shown_s = None  # after any error, query everything again
            raise
        self._before = found
        jobs, layouts = self._jobs.read(everything.rows, everything.shown, everything.merged())
        partitions = scontrol_objects.parse_partitions(self._kept["partitions"][1])
        config = scontrol_objects.parse_config(self._kept["config"][1])
        return SlurmRecords(
            now_s=int(time.time()),
            nodes=self._nodes.read(texts["nodes"]),
            partitions=partitions,
            reservations=scontrol_objects.parse_reservations(texts["reservations"]),
            jobs=jobs,
            layouts=layouts,
            guarded="lua" in config["job_submit_plugins"],
            outside=self._outside(jobs, partitions),
            topologies=self._topologies_now(config),
        )

    def read_accounting(self, since_s: int) -> Sequence[Record]:
        """Return ended jobs; only the first call waits, for at most the controller's time limit."""
        wait_s, self._past_wait_s = self._past_wait_s, 0.0
        if self._past is None:
            end = squeue.make_random_word()
            asked = self._programs({"sacct": sacct.build_sacct_command(since_s, end)}, self._history_deadline_s)
            self._past = asked, end, since_s
        asked, end, since_s = self._past
        if not asked.wait_for_outputs(wait_s):
            raise BackendTimeout(f"past: no answer yet, after {wait_s:g} s")
        self._past = None
        return sacct.parse_ended_jobs(asked.collect_outputs()["sacct"], end, since_s)

    def read_jobs(self, numbers: Collection[int] | None) -> list[Record]:
        """Return newly read jobs by Slurm's own numbers; None selects all jobs.

        An array's number selects all of its records. The records contain id, state, state_reason, priority,
        admin_comment, comment, requeue_count, num_nodes, array_id, array_task_id and array_tasks_waiting. A job that
        has left the queue is missing. An array's common record is also missing if it cannot be distinguished from
        forged records.
        """
        if numbers is not None and not numbers:
            return []
        rows = self._rows(squeue.LOOKED_AT, numbers or ())
        found = _Rows(rows)
        if squeue.has_array_records(rows):
            shown, twice = scontrol_job.split_records(self._ask({"all": scontrol_job.ALL})["all"])
            found = self._with_details(rows, shown, twice, whole=False)
        merged = found.merged()
        wanted = None if numbers is None else set(numbers)
        looked = [_looked_at(number, row, found, number in merged) for number, row in found.rows.items()]
        return [
            record
            for record in looked
            if record is not None and (wanted is None or not wanted.isdisjoint((record["id"], record["array_id"])))
        ]

    def close(self) -> None:
        """Stop running programs."""
        if self._past is not None:
            self._past[0].close()
            self._past = None

    # ---- implementation

    def _release(self) -> tuple[tuple[int, int], str]:
        """Return the release of Slurm's programs on this host, as numbers and in full; cached."""
        if self._version is None:
            said = self._ask({"version": ("squeue", "--version")})["version"]
            found = _VERSION.search(said)
            if found is None:
                raise BackendUnavailable(f"squeue --version: {said.strip()[:60]!r} tells no version")
            self._version, self._clients = (int(found[1]), int(found[2])), found[0]
        return self._version, self._clients

    def _ask(self, commands: Mapping[str, Sequence[str]]) -> dict[str, str]:
        return self._begun(commands).collect_outputs()

    def _begun(self, commands: Mapping[str, Sequence[str]], typed: Mapping[str, str] | None = None) -> SlurmPrograms:
        """Start programs, each with a limit on its silence and on its total time."""
        calls = sum(count_calls(command) for name, command in commands.items() if name not in (typed or {}))
        self._budget.spend(calls + sum(words.count("\n") for words in (typed or {}).values()))
        slack_s = self._budget.deadline_extension_s
        return self._programs(commands, self._patience.silence_s + slack_s, typed, self._patience.limit_s + slack_s)

    def _apart(self, numbers: list[int]) -> str | None:
        """Return scontrol's output for these jobs and no others; None on failure."""
        try:
            return scontrol_job.strip_prompts(self._begin_apart(numbers).collect_outputs()["apart"])
        except BackendError:
            return None

    def _is_due(self, name: str, period_s: float) -> bool:
        return name not in self._kept or self._clock() - self._kept[name][0] >= period_s

    def _due(self, name: str, command: Sequence[str], period_s: float) -> dict[str, Sequence[str]]:
        return {name: command} if self._is_due(name, period_s) else {}

    def _keep(self, texts: Mapping[str, str]) -> None:
        now_s = self._clock()
        self._kept |= {name: (now_s, texts[name]) for name in ("partitions", "config") if name in texts}
        if "config" in texts:
            self._budget.set_limit(parse_rate_limit(texts["config"], os.getuid()))

    def _jobs_now(self, fields: Sequence[str]) -> dict[int, Row]:
        """Return all jobs that squeue shows; the row of an unchanged job stays the same object."""
        self._squeued = self._squeued or squeue.SqueueRecordParser(fields)
        end = squeue.make_random_word()
        printed = self._ask({"jobs": squeue.build_squeue_command(fields, end)})["jobs"]
        return squeue.index_by_number(self._squeued.read(printed, end))

    def _ask_with_details(self, found: Mapping[int, Row], around: dict[str, Sequence[str]]) -> dict[str, str]:
        """Return the answers to `around`; also query scontrol for jobs that are new or changed."""
        fresh = [number for number, row in found.items() if not squeue.is_unchanged(self._before.get(number), row)]
        few = len(fresh) <= min(MOST_APART, len(found) // SHARE_APART)
        now_s = self._clock()
        if now_s < self._slow_until_s:
            return self._ask_for_some(found, fresh, around)
        old = self._all_shown_s is None or now_s - self._all_shown_s >= self._details_period_s
        if not found or (few and not old and not squeue.has_pending_arrays(found)):
            with contextlib.ExitStack() as asked:
                apart = self._begin_apart(fresh) if fresh else None
                if apart is not None:
                    asked.callback(apart.close)
                texts = self._ask(around)
                if apart is None or self._take_apart(apart, fresh):
                    self._shown = {number: self._shown[number] for number in found if number in self._shown}
                    self._twice &= found.keys()
                    return texts
            around = {}
        else:
            texts = {}
        try:
            texts |= self._ask({**around, "details": scontrol_job.ALL})
        except BackendTimeout:
            self._slow_until_s = self._clock() + DETAILS_MOST_S
            raise
        self._shown, self._twice = scontrol_job.split_records(texts["details"])
        self._all_shown_s = now_s
        took_s = self._clock() - now_s
        self._details_period_s = min(DETAILS_MOST_S, max(DETAILS_INTERVAL_S, DETAILS_SHARE * took_s))
        return texts

    def _ask_for_some(
        self, found: Mapping[int, Row], fresh: Sequence[int], around: dict[str, Sequence[str]]
    ) -> dict[str, str]:
        """Return the answers to `around`, and query scontrol for some jobs, because showing all took too long.

        Jobs that have nodes come first, then jobs that were never shown, oldest first. The queries stop after the time
        for which slurmctld may be silent.
        """
        placed = [number for number in fresh if found[number]["State"] in slurm_states.OCCUPYING]
        unknown = sorted(number for number in fresh if number not in self._shown and number not in self._twice)
        wanted = list(dict.fromkeys([*placed, *unknown]))[:MOST_APART_WHILE_SLOW]
        texts = self._ask(around)
        until_s = self._clock() + self._patience.silence_s
        for at in range(0, len(wanted), MOST_APART):
            if self._clock() > until_s:
                break
            part = wanted[at : at + MOST_APART]
            self._take_apart(self._begin_apart(part), part, whole=False)
        self._shown = {number: self._shown[number] for number in found if number in self._shown}
        self._twice &= found.keys()
        return texts

    def _known_enough(self, found: dict[int, Row]) -> dict[int, Row]:
        """Return the rows without pending jobs that scontrol has not shown yet.

        scontrol is slow at that point, so later readings query these jobs.
        """
        if self._clock() >= self._slow_until_s:
            return found
        pending = slurm_states.PENDING
        known = self._shown.keys() | self._twice
        return {number: row for number, row in found.items() if number in known or row["State"] != pending}

    def _begin_apart(self, numbers: Collection[int]) -> SlurmPrograms:
        return self._begun({"apart": scontrol_job.TYPED}, {"apart": scontrol_job.show_job_input(numbers)})

    def _take_apart(self, apart: SlurmPrograms, numbers: Collection[int], whole: bool = True) -> bool:
        """Store what scontrol shows for these jobs only, because any job may forge other records.

        Return False if it does not show each of them, for example because a job has left the queue. With `whole`,
        nothing is stored in that case.
        """
        try:
            shown, twice = scontrol_job.split_records(scontrol_job.strip_prompts(apart.collect_outputs()["apart"]))
        except BackendError:
            return False
        if whole and not all(number in shown or number in twice for number in numbers):
            return False
        self._twice = (self._twice - set(numbers)) | twice.intersection(numbers)
        for number in numbers:
            self._shown.pop(number, None)
        self._shown |= {number: shown[number] for number in numbers if number in shown}
        return True

    def _rows(self, fields: Sequence[str], numbers: Collection[int]) -> dict[int, Row]:
        parts = squeue.split_into_chunks(numbers) or [[]]
        end = squeue.make_random_word()
        asked = {str(at): squeue.build_squeue_command(fields, end, part) for at, part in enumerate(parts)}
        try:
            texts = self._ask(asked)
        except BackendUnavailable as error:
            if len(numbers) == 1 and "Invalid job id" in str(error):
                return {}  # squeue queries a single job differently, and fails if it has left
            raise
        found: dict[int, Row] = {}
        for text in texts.values():  # an array may be in several parts
            found |= squeue.index_by_number(squeue.SqueueRecordParser(fields).read(text, end))
        return found

    def _with_details(
        self, rows: dict[int, Row], shown: dict[int, UnparsedScontrolJob], twice: set[int], whole: bool = True
    ) -> _Rows:
        """Return the rows with scontrol's records, and with the hidden waiting tasks.

        Raise `AnswerNotUnderstood` if only squeue shows a job that waits or runs: scontrol was called later, so its
        answer must be incomplete. With `whole` False, squeue did not query all jobs.
        """
        arrays = {int(_array(row)) for row in rows.values() if "_[" in row["JobArrayID"]}
        hidden = {number for number, one in shown.items() if number not in rows and one.array_id in arrays}
        hidden |= {number for number in twice if number not in rows and arrays}
        known = self._known_unseen(hidden, shown) if whole else {}
        asked_for = hidden - known.keys()
        if len(asked_for) > squeue.MOST_NAMED:
            asked_for = self._in_arrays(arrays, asked_for)
            hidden = asked_for | known.keys()
        rows = {**rows, **known}
        if asked_for:
            fields = tuple(next(iter(rows.values())))
            unseen = self._rows(fields, asked_for)
            rows |= {number: row for number, row in unseen.items() if number not in rows}
        if whole:
            now_s = self._clock()
            fresh = {n: (now_s, shown[n], rows[n]) for n in asked_for if n in rows and n in shown}
            self._unseen = {n: self._unseen[n] for n in known} | fresh
        twice &= rows.keys()
        if whole:
            alive = {slurm_states.PENDING, *slurm_states.OCCUPYING}
            lost = [n for n, row in rows.items() if n not in shown and n not in twice and row["State"] in alive]
            if lost:
                raise AnswerNotUnderstood(
                    f"scontrol show job: lacks {format_count(len(lost), 'job')} that squeue shows, such as {lost[0]}"
                )
            shown |= self._suspects.resolve(twice, rows)
        else:
            shown |= self._looked_suspects.resolve(twice, rows)
        return _Rows(rows, shown, twice, hidden)

    def _known_unseen(self, hidden: Collection[int], shown: Mapping[int, UnparsedScontrolJob]) -> dict[int, Row]:
        """Return the known rows of hidden tasks whose scontrol records are unchanged."""
        found: dict[int, Row] = {}
        for number in hidden:
            asked_s, record, row = self._unseen.get(number, (0.0, None, None))
            if row is not None and record == shown.get(number) and self._clock() - asked_s < DETAILS_INTERVAL_S:
                found[number] = row
        return found

    def _in_arrays(self, arrays: Collection[int], numbers: Collection[int]) -> set[int]:
        """Return the numbers that belong to these arrays.

        Each array is queried alone, because it can then forge only records of its own tasks. The result contains at
        most as many numbers per array as one squeue can query.
        """
        found: set[int] = set()
        for array in sorted(arrays)[:MOST_ARRAYS]:
            printed = self._apart([array])
            shown = scontrol_job.split_records(printed)[0] if printed is not None else {}
            own = sorted(number for number, one in shown.items() if number in numbers and one.array_id == array)
            found.update(own[: squeue.MOST_NAMED])
        return found

    def _topologies_now(self, config: Record) -> dict[str, Record]:
        """Return the topologies, which are queried every `topology.PERIOD_S` seconds."""
        now_s = self._clock()
        if self._topologies is None or now_s - self._topologies[0] >= topology.PERIOD_S:
            is_named = self._release()[0] >= topology.TOPOCONF_SINCE
            named = self._ask({"named": topology.TOPOCONF})["named"] if is_named else ""
            self._topologies = now_s, topology.read_topologies(config, named, self._ask_or_empty)
        return self._topologies[1]

    def _ask_or_empty(self, command: Sequence[str]) -> str:
        try:
            return self._ask({"shown": command})["shown"]
        except BackendError:
            return ""

    def _outside(self, jobs: Sequence[Record], partitions: Sequence[Record]) -> dict[str, list[str]]:
        """Return, by user with pending jobs, the groups allowed by partitions that the user does not belong to.

        A group of unknown membership is omitted.
        """
        allowed = {name for row in partitions for name in row["allowed_groups"] or () if name != "ALL"}
        if not allowed:
            return {}
        users = {job["user_name"] for job in jobs if job["state"] == slurm_states.PENDING and job["user_name"]}
        return self._groups.find_missing_groups(users, allowed)


def _looked_at(number: int, row: Row, found: _Rows, merged: bool) -> Record | None:
    """Return the record of a job for `SlurmCliReader.read_jobs`; None if it is ambiguous."""
    array, is_task, task = row["JobArrayID"].partition("_")
    shown = found.shown.get(number)
    reason = row["Reason"]
    waiting: str | None = None
    try:
        if task.startswith("["):
            if shown is None:
                return None
            waiting = shown.tasks.partition("%")[0]
            if merged:
                one = scontrol_job.parse_detail(shown, row["Name"])
                if one is None:
                    return None
                reason = one.get_reason()
        return {
            "id": number,
            "state": row["State"],
            "state_reason": slurm_value_parsers.parse_text(reason),
            "priority": int(row["PriorityLong"]),
            "num_nodes": slurm_value_parsers.parse_count(row["NumNodes"]),
            "admin_comment": slurm_value_parsers.parse_text(row["admin_comment"]),
            "comment": slurm_value_parsers.parse_text(row["Comment"]),
            "requeue_count": slurm_value_parsers.parse_number(row["RestartCnt"]) or 0,
            "array_id": int(array) if is_task else None,
            "array_task_id": int(task) or None if is_task and waiting is None else None,
            "array_tasks_waiting": waiting,
        }
    except ValueError:
        return None
