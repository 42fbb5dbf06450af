"""Define PBS's objects, and parse them from the attributes that PBS prints.

A record maps the names of PBS's attributes, such as `job_state`, to values:

- Scalars are text, even if the JSON contains numbers (see `UnquotedValue`).
- Attributes with parts, such as `Resource_List`, are dicts of text values.
- Lists, and attributes that PBS prints several times (limits), are tuples of text values.

Records omit each job's environment. An unreadable attribute has its default in the object and is listed in the object's
`unreadable`.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import TypeVar

from cpsched.pbs_text import parse_duration_s, parse_size_bytes
from cpsched_bridge.adapters.shared.adapter_errors import UNREADABLE_FIELD_ERRORS
from cpsched_bridge.ports import ObjectKind, UnusableObject

Value = str | tuple[str, ...] | dict[str, "str | tuple[str, ...]"]
Record = dict[str, Value]
T = TypeVar("T")

UNREADABLE_KEY = "unreadable"
"""Attribute that marks an unreadable record. Its value is the reason."""
BOOST_RESOURCE = "cpsched_boost"
"""Custom resource that contains a job's boost. Only managers and operators can write it."""
LEASE_RESOURCE = "cpsched_lease"
"""Custom resource on the server that contains the lease of the bridge in control."""
VNODE_LIMITS = ("max_running", "max_user_run", "max_group_run")
"""Limits on a vnode's jobs. The bridge starts no jobs on a vnode that has one, because it does not model them."""
MIB = 1 << 20
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{0,9})?|\.\d{1,9}", re.ASCII)
_VNODE = re.compile(r"([^()+:=\s]+):[^()+:=\s]+=")


class UnquotedValue(str):
    """A value that PBS printed without quotes.

    Some releases print text that looks like a number as a number: `07` as 7, `1e5` as 100000.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PbsCustomResource:
    """A custom resource as listed by `qmgr`."""

    type: str
    flags: str = ""

    @property
    def is_consumable(self) -> bool:
        """Whether jobs consume a vnode's amount of the resource."""
        return "n" in self.flags or "f" in self.flags


NON_TEXT_TYPES = frozenset({"long", "float", "size", "boolean"})
"""Resource types whose values are not text, so that one value may have several spellings."""
BUILT_IN_NON_TEXT_RESOURCES = frozenset({
    "accelerator", "accelerator_memory", "energy", "hbmem", "mem", "naccelerators", "ncpus", "pcap_accelerator",
    "pcap_node", "pmem", "pvmem", "vmem",
})  # fmt: skip
"""PBS's built-in resources with a type in `NON_TEXT_TYPES`."""


def is_text_resource(resource: str, kinds: Mapping[str, PbsCustomResource]) -> bool:
    """Return whether a resource's values are text, so that `07` differs from `7`."""
    return (
        kinds[resource].type not in NON_TEXT_TYPES if resource in kinds else resource not in BUILT_IN_NON_TEXT_RESOURCES
    )


# ------------------------------------------------------------------------------------------------ objects


@dataclass(frozen=True, slots=True)
class PbsJob:
    """A job, an array, or a subjob. Times are Unix times in seconds, and None if they are missing or unreadable."""

    state: str = ""
    substate: str = ""
    queue: str = ""
    name: str = ""
    owner: str = ""
    """User name without the host."""
    group: str = ""
    project: str = ""
    account: str = ""
    requested: Mapping[str, str] = field(default_factory=dict)
    """The parts of `Resource_List`, in PBS's syntax."""
    select: str = ""
    """The chunks with the defaults of the server and the queue (`schedselect`)."""
    walltime_s: int | None = None
    min_walltime_s: int | None = None
    """Shortest walltime of a shrink-to-fit job."""
    max_walltime_s: int | None = None
    boost: int | None = 0
    """Points that the job's boost adds, or None if they are unreadable."""
    priority: float = 0.0
    accrue_type: float = 0.0
    submit_s: int = 0
    """Time of submission to this server, or 0."""
    eligible_s: int | None = None
    """Time in seconds for which the job was eligible."""
    start_s: int | None = None
    used_walltime_s: int | None = None
    exec_vnode: str = ""
    hold_types: str = "n"
    has_dependency: bool = False
    exit_status: str = ""
    max_running_subjobs: int | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Reasons by attribute. `UNREADABLE_KEY` concerns the whole record."""

    @property
    def is_unreadable(self) -> bool:
        """Whether PBS did not print a usable record of the job."""
        return UNREADABLE_KEY in self.unreadable

    @property
    def holds(self) -> frozenset[str]:
        """The letters of the job's holds. Raise `ValueError` if they are unreadable."""
        self.require_readable("Hold_Types")
        return frozenset(self.hold_types) - {"n"}

    def require_readable(self, *names: str) -> None:
        """Raise `ValueError` if one of these attributes is unreadable."""
        for name in names:
            if name in self.unreadable:
                raise ValueError(self.unreadable[name])


@dataclass(frozen=True, slots=True)
class PbsVnode:
    """A vnode. `unreadable` is the reason why it is unreadable, or empty."""

    states: frozenset[str] = frozenset()
    queue: str = ""
    """Queue to which the vnode is dedicated, or empty."""
    partition: str = ""
    sharing: str = "default_shared"
    limits: Mapping[str, str] = field(default_factory=dict)
    """The vnode's `VNODE_LIMITS` by name."""
    allows_only_single_host_jobs: bool = False
    available: Mapping[str, str] = field(default_factory=dict)
    assigned: Mapping[str, str] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()
    reservations: frozenset[str] = frozenset()
    """Names of the confirmed reservations, which may begin later."""
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class PbsQueue:
    """A queue. If `is_started` is true, PBS's scheduler starts its jobs."""

    name: str
    is_execution_queue: bool = False
    is_started: bool = False
    is_enabled: bool = False
    partition: str = ""
    priority: int = 0
    limits: Mapping[str, Value] = field(default_factory=dict)
    """The attributes that may limit running jobs."""
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class PbsServer:
    """The server."""

    version: str = ""
    host: str = ""
    managers: tuple[str, ...] = ()
    is_scheduling: bool = False
    keeps_history: bool = False
    accrues_eligible_time: bool = False
    formula: str | None = ""
    """The `job_sort_formula`, or None if it is unreadable."""
    lease: str = ""
    """Value of `LEASE_RESOURCE`."""
    limits: Mapping[str, Value] = field(default_factory=dict)
    """The attributes that may limit running jobs."""


@dataclass(frozen=True, slots=True)
class PbsScheduler:
    """One of PBS's schedulers."""

    state: str = ""
    formula: str | None = ""
    """The `job_sort_formula`, or None if it is unreadable."""
    threshold: str = ""

    @property
    def is_running(self) -> bool:
        """Whether the scheduler is in a cycle, which may still start jobs."""
        return self.state.lower() == "scheduling"


@dataclass(frozen=True, slots=True)
class PbsReservationRecord:
    """A reservation as PBS prints it. If it is unreadable, its times are 0."""

    state: str = ""
    from_s: int = 0
    to_s: int = 0
    vnodes: tuple[str, ...] = ()
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class PbsRecords:
    """PBS's objects by name. Jobs include array parents and subjobs."""

    now_s: int
    server: PbsServer
    jobs: Mapping[str, PbsJob] = field(default_factory=dict)
    queues: Mapping[str, PbsQueue] = field(default_factory=dict)
    vnodes: Mapping[str, PbsVnode] = field(default_factory=dict)
    reservations: Mapping[str, PbsReservationRecord] = field(default_factory=dict)
    resources: Mapping[str, PbsCustomResource] = field(default_factory=dict)
    schedulers: Mapping[str, PbsScheduler] = field(default_factory=dict)
    """PBS's schedulers, which are read only on request."""
    unreadable: tuple[UnusableObject, ...] = ()
    """Objects omitted from the objects above."""


def make_unusable_object(kind: ObjectKind, name: str, why: str) -> UnusableObject:
    """Return the object that is excluded because it is unreadable."""
    return UnusableObject(kind, name[:80], "record", "unreadable", why[:200])


def select_managed_queues(queues: Mapping[str, PbsQueue], names: Collection[str]) -> dict[str, PbsQueue]:
    """Return the readable execution queues among `names`, by name."""
    managed = {name: queues[name] for name in names if name in queues}
    return {name: queue for name, queue in managed.items() if queue.is_execution_queue and not queue.unreadable}


# ------------------------------------------------------------------------------------------------ parsers


@dataclass(slots=True)
class _Attributes:
    """A record's attributes, and the reasons why some are unreadable."""

    record: Record
    unreadable: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """Return a single text value."""
        value = self.record.get(name) or default
        if isinstance(value, str):
            return value
        self.unreadable[name] = f"{name} is not a single text value"
        return default

    def flag(self, name: str) -> bool:
        """Return whether a boolean attribute is set and true."""
        return self.text(name).lower() in ("true", "t", "1", "y", "yes")

    def texts(self, name: str) -> tuple[str, ...]:
        """Return all text values of an attribute that PBS may print several times."""
        return list_text_values(self.record.get(name))

    def parts(self, name: str) -> dict[str, str]:
        """Return the parts of an attribute whose values are single texts."""
        parts = self.record.get(name, {})
        if isinstance(parts, dict):
            return {key: value for key, value in parts.items() if isinstance(value, str)}
        self.unreadable[name] = f"{name} has no parts"
        return {}

    def parse(self, name: str, parse: Callable[[str], T], default: T, parts: Mapping[str, str] | None = None) -> T:
        """Return a parsed attribute or part, or `default` if it is missing, empty or unreadable."""
        text = self.text(name) if parts is None else parts.get(name)
        try:
            return parse(text) if text else default
        except UNREADABLE_FIELD_ERRORS as error:
            self.unreadable[name] = str(error)
            return default

    @property
    def problem(self) -> str:
        """Why an attribute read so far or the whole record is unreadable, or ""."""
        return next(iter(self.unreadable.values()), str(self.record.get(UNREADABLE_KEY, "")))


def parse_job(record: Record) -> PbsJob:
    """Return a job, an array, or a subjob."""
    read = _Attributes(record)
    requested = read.parts("Resource_List")
    if UNREADABLE_KEY in record:
        read.unreadable[UNREADABLE_KEY] = str(record[UNREADABLE_KEY])
    return PbsJob(
        state=read.text("job_state"),
        substate=read.text("substate"),
        queue=read.text("queue"),
        name=read.text("Job_Name"),
        owner=read.text("euser") or read.text("Job_Owner").partition("@")[0],
        group=read.text("egroup"),
        project=read.text("project"),
        account=read.text("Account_Name") or read.text("project"),
        requested=requested,
        select=read.text("schedselect"),
        walltime_s=read.parse("walltime", _parse_walltime_s, None, requested),
        min_walltime_s=read.parse("min_walltime", _parse_walltime_s, None, requested),
        max_walltime_s=read.parse("max_walltime", _parse_walltime_s, None, requested),
        boost=None if "Resource_List" in read.unreadable else _parse_or_none(int, requested.get(BOOST_RESOURCE, "0")),
        priority=read.parse("Priority", float, 0.0),
        accrue_type=read.parse("accrue_type", float, 0.0),
        submit_s=read.parse("ctime" if read.texts("ctime") else "qtime", parse_unix_time_s, 0),
        eligible_s=read.parse("eligible_time", parse_duration_s, None),
        start_s=read.parse("stime", parse_unix_time_s, None),
        used_walltime_s=_parse_or_none(parse_duration_s, read.parts("resources_used").get("walltime", "")),
        exec_vnode=read.text("exec_vnode"),
        hold_types=read.text("Hold_Types", "n"),
        has_dependency="depend" in record,
        exit_status=read.text("Exit_status"),
        max_running_subjobs=read.parse("max_run_subjobs", int, None),
        unreadable=read.unreadable,
    )


def parse_vnode(record: Record) -> PbsVnode:
    """Return a vnode."""
    read = _Attributes(record)
    return PbsVnode(
        states=frozenset(each.strip() for each in read.text("state").split(",") if each.strip()),
        queue=read.text("queue"),
        partition=read.text("partition"),
        sharing=read.text("sharing", "default_shared"),
        limits={name: str(record[name]) for name in VNODE_LIMITS if name in record},
        allows_only_single_host_jobs=read.flag("no_multinode_jobs"),
        available=read.parts("resources_available"),
        assigned=read.parts("resources_assigned"),
        jobs=read.texts("jobs"),
        reservations=frozenset(name.strip() for value in read.texts("resv") for name in value.split(",")),
        unreadable=read.problem,
    )


def parse_queue(name: str, record: Record) -> PbsQueue:
    """Return a queue."""
    read = _Attributes(record)
    return PbsQueue(
        name,
        is_execution_queue=read.text("queue_type").lower().startswith("e"),
        is_started=read.flag("started"),
        is_enabled=read.flag("enabled"),
        partition=read.text("partition"),
        unreadable=read.problem,
        priority=read.parse("Priority", int, 0),
        limits=_select_limits(record),
    )


def parse_server(record: Record) -> PbsServer:
    """Return the server."""
    read = _Attributes(record)
    return PbsServer(
        version=read.text("pbs_version"),
        host=read.text("server_host"),
        managers=read.texts("managers"),
        is_scheduling=read.flag("scheduling"),
        keeps_history=read.flag("job_history_enable"),
        accrues_eligible_time=read.flag("eligible_time_enable"),
        formula=_parse_formula(read),
        lease=read.parts("resources_available").get(LEASE_RESOURCE, ""),
        limits=_select_limits(record),
    )


def parse_scheduler(record: Record) -> PbsScheduler:
    """Return a scheduler."""
    read = _Attributes(record)
    return PbsScheduler(read.text("state"), _parse_formula(read), read.text("job_sort_formula_threshold"))


def parse_custom_resource(record: Record) -> PbsCustomResource:
    """Return a custom resource, whose type is by default a string."""
    read = _Attributes(record)
    return PbsCustomResource(read.text("type", "string"), read.text("flag"))


def parse_reservation(record: Record) -> PbsReservationRecord:
    """Return a reservation."""
    read = _Attributes(record)
    start_s = read.parse("reserve_start", parse_unix_time_s, None)
    end_s = read.parse("reserve_end", parse_unix_time_s, None)
    if end_s is None and start_s is not None:
        duration_s = read.parse("reserve_duration", parse_duration_s, None)
        end_s = None if duration_s is None else start_s + duration_s
    read.text("resv_nodes")
    vnodes = tuple(name for text in read.texts("resv_nodes") for name in parse_vnode_names(text))
    state = read.text("reserve_state")
    missing = "has no start or no end" if start_s is None or end_s is None else ""
    return PbsReservationRecord(state, start_s or 0, end_s or 0, vnodes, read.problem or missing)


def _parse_formula(read: _Attributes) -> str | None:
    formula = read.text("job_sort_formula").strip()
    return None if "job_sort_formula" in read.unreadable else formula


def _select_limits(record: Record) -> dict[str, Value]:
    return {name: value for name, value in record.items() if name.startswith("max_") or name == "resources_available"}


def _parse_walltime_s(text: str) -> int:
    return max(1, parse_duration_s(text))


def _parse_or_none(parse: Callable[[str], int], text: str) -> int | None:
    try:
        return parse(text)
    except UNREADABLE_FIELD_ERRORS:
        return None


def list_text_values(value: Value | None) -> tuple[str, ...]:
    """Return all text values of an attribute that PBS may print several times."""
    if value is None or isinstance(value, dict):
        return ()
    return (value,) if isinstance(value, str) else value


def parse_vnode_names(text: str) -> list[str]:
    """Return the vnode names in an `exec_vnode` or `resv_nodes` value, in order, possibly repeated."""
    return _VNODE.findall(text)


def parse_resource_amount(text: str, is_size: bool) -> Fraction:
    """Return an amount, with sizes in MiB. Raise `ValueError` for malformed text."""
    if is_size:
        return Fraction(parse_size_bytes(text), MIB)
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is not a number")
    return Fraction(text.strip())


def parse_unix_time_s(text: str) -> int:
    """Return the Unix time from a UTC time or a number of seconds.

    Example: "Sun Nov 22 12:40:38 2026". Raise `ValueError` for other text.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return calendar.timegm(datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y").timetuple())
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time") from None
