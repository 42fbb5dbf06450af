"""The settings file of the bridge: YAML, every field with a sentence, errors that name the file and the field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cpsched.errors import CpschedError, InvalidValue
from cpsched.goal_presets import Goal
from cpsched.model import PowerCap
from cpsched.model.overrun import Overrun
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.errors import InvalidSetting, SettingsError
from cpsched_bridge.page_readers import checked_header, checked_user, network_of
from cpsched_sim.errors import SimulationError
from cpsched_sim.input.yaml_tree import YamlTree, plain_text, read_tree

S = TypeVar("S", bound=BaseModel)
MAX_NUMBER = 1_000_000_000
"""Largest number in the settings, either sign: 31 years in seconds."""


@dataclass(frozen=True, slots=True)
class RetiredSetting:
    """A setting that files of older versions hold: ignored with a warning, where an unknown one is an error."""

    removed_in: str
    instead: str
    adapter: str = ""
    """The adapter whose option it was; empty for settings of every bridge."""


RETIRED_SETTINGS: Mapping[str, RetiredSetting] = {
    "guard.max_failed_starts": RetiredSetting("0.1.0", "set circuit_breaker.failing_users"),
    "guard.window_s": RetiredSetting("0.1.0", "failed starts count for 300 s"),
    "guard.failed_starts": RetiredSetting("0.1.0", "a user counts as failing after 3 failed starts in a row"),
    "guard.max_failed_decisions": RetiredSetting("0.1.0", "the bridge pauses after 5 failed decisions in a row"),
    "cycle.reading_share": RetiredSetting("0.1.0", "readings of the cluster take at most half of the time"),
    "cycle.longest_gap": RetiredSetting("0.1.0", "a cycle that begins 10 intervals late is an event"),
    "cycle.wake_after_s": RetiredSetting(
        "0.1.0", "a trigger file begins a cycle at least 1 s after the begin of the last one"
    ),
    "start.stuck_s": RetiredSetting("0.1.0", "a hold or release that has no effect for 120 s is an event"),
    "advise.depth": RetiredSetting("0.1.0", "the first 100 jobs of the plan are put in order"),
    "advise.most_changes": RetiredSetting("0.1.0", "at most 100 jobs get new points at one time"),
    "policy.limits": RetiredSetting("0.1.0", "policy.goal has limits; `cpsched tune --limits` takes others"),
    "page.public": RetiredSetting(
        "0.1.0", "on another address than loopback the page needs page.user_header and page.trusted_proxies"
    ),
    "tune": RetiredSetting("0.1.0", "cpsched-tune.timer reports what `cpsched tune` finds; edit policy: by hand"),
    "options.socket": RetiredSetting(
        "0.1.0", "the mock adapter simulates its site in the bridge's own process", "mock"
    ),
    "options.busy_requests": RetiredSetting("0.1.0", "slurmctld counts as busy with 100 requests at once", "slurm"),
    "options.busy_messages": RetiredSetting("0.1.0", "slurmctld counts as busy with 1,000 messages to send", "slurm"),
    "options.policy_deadline_s": RetiredSetting(
        "0.1.0", "the commands that read the site's policy may take 10 s", "slurm"
    ),
    "options.history_days": RetiredSetting("0.1.0", "jobs that ended in the last 7 days are read at start", "slurm"),
}
"""By dotted name, `options.` included: what is ignored, and what to write in its place. Names are never used again."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A setting that has another name, or takes other words, since a version; the old ones work with a warning."""

    new: str
    renamed_in: str = "0.1.0"
    values: Mapping[str, str] = field(default_factory=dict)
    """Old words -> new ones."""


RENAMED: Mapping[str, Renamed] = {
    "guard.claim_gone_s": Renamed("lease.duration_s"),
    "guard.failing_users": Renamed("circuit_breaker.failing_users"),
    "policy.own_process": Renamed("policy.isolation", values={"always": "process", "never": "none"}),
    "cycle.slow_down": Renamed("cycle.max_interval_factor"),
    "cycle.wake_files": Renamed("cycle.trigger_files"),
    "advise.points": Renamed("advise.max_boost"),
    "on_stop": Renamed("on_stop", values={"hand-back": "release"}),
}
"""By the old dotted name. The old names are removed two minor releases later."""


class Section(BaseModel):
    """A part of the settings file: unknown fields are errors, not typos that go unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_what_it_says(cls, value: Any, info: ValidationInfo) -> Any:
        """`1` is no `true`, and `true` is no number: somebody meant something else."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if kind is bool and not isinstance(value, bool):
            raise PydanticCustomError("bool_type", "must be true or false")
        if isinstance(value, bool) and kind in (int, float, int | None, float | None):
            raise PydanticCustomError("float_type", "must be a number")
        return value

    @field_validator("*")
    @classmethod
    def _is_within_reason(cls, value: Any) -> Any:
        if isinstance(value, int | float) and abs(value) > MAX_NUMBER:
            raise ValueError(f"must be within {MAX_NUMBER:,}")
        return value


class PowerSettings(Section):
    """A cap of power, which holds whoever decides."""

    cap_w: int | None = Field(
        default=None, gt=0, description="The most that all running jobs may draw together, in watts."
    )
    watts: dict[str, int] = Field(
        default_factory=dict,
        description="What a job is taken to draw for each amount of a resource that it asks for, by resource.",
    )

    @model_validator(mode="after")
    def _says_both(self) -> PowerSettings:
        if (self.cap_w is None) != (not self.watts):
            raise ValueError("cap_w and watts need each other")
        return self

    def cap(self) -> PowerCap | None:
        """The cap, where one is set."""
        return None if self.cap_w is None else PowerCap.of(self.cap_w, self.watts)


class PolicySettings(Section):
    """What decides."""

    goal: str | dict[str, float] | None = Field(
        default=None,
        description="What the site wants: `waits`, `balance` or `large-jobs`, or weights by figure, such as "
        "`{bsld: 2, awf: 1}`; null: the dispatcher's own objective, or the one in `dispatcher_settings`; "
        "`cpsched tune` then goes by `balance`.",
    )
    dispatcher: str = Field(
        default="lookahead",
        description="Dispatcher by name (`cpsched dispatchers` lists them) or package.module:Class.",
    )
    dispatcher_settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Its parameters by name, as `cpsched dispatchers` lists them."
    )
    predictor: str = Field(
        default="walltime", description="Predictor by name (`cpsched predictors` lists them) or package.module:Class."
    )
    predictor_settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Its parameters by name, as `cpsched predictors` lists them."
    )
    overrun: Overrun | None = Field(
        default=None,
        description="What a running job is assumed to do when it outlives its estimate; "
        "null: the dispatcher's own rule (`lookahead`: walltime, the others: one-second).",
    )
    fallback: str = Field(
        default="easy",
        description="Dispatcher that decides, on requested times, where the other hangs or fails; `none`: nobody does.",
    )
    isolation: Literal["auto", "process", "none"] = Field(
        default="auto",
        description="process: run the dispatcher in a process that is killed when it hangs; auto: unless it is the "
        "fallback.",
    )

    power: PowerSettings = Field(default_factory=PowerSettings)

    @field_validator("goal")
    @classmethod
    def _makes_sense(cls, value: Any) -> Any:
        try:
            Goal.of(value)
        except InvalidValue as error:
            raise ValueError(error.rule) from error
        except CpschedError as error:
            raise ValueError(str(error)) from error
        return value

    def of_goal(self) -> dict[str, str]:
        """The settings of the dispatcher that the goal stands for; none where no goal is named."""
        return {} if self.goal is None else {"objective": Goal.of(self.goal).objective}

    @property
    def falls_back(self) -> bool:
        """Whether there is somebody else to decide."""
        return self.fallback != "none"

    @property
    def apart(self) -> bool:
        """Whether the dispatcher runs in a process of its own."""
        return self.isolation == "process" or (self.isolation == "auto" and self.dispatcher != self.fallback)

    def fallback_spec(self) -> PolicySpec:
        """The policy that decides where the configured one fails: no predictor, nothing learned."""
        return PolicySpec(self.fallback, overrun=self.overrun)

    def spec(self) -> PolicySpec:
        """The same as the policy in words that is built and journalled."""
        return PolicySpec(
            self.dispatcher,
            self.predictor,
            {**self.of_goal(), **_as_texts(self.dispatcher_settings)},
            _as_texts(self.predictor_settings),
            self.overrun,
        )


class CycleSettings(Section):
    """How often the bridge looks, and how much it does at once."""

    interval_s: float = Field(
        default=1.0, gt=0, description="Seconds from the start of one cycle to the start of the next."
    )
    max_commands: int = Field(
        default=500, gt=0, description="Jobs that one cycle may send commands for; the rest waits."
    )
    max_interval_factor: float = Field(
        default=5.0,
        ge=1,
        description="While the cluster is busy, the pause grows to at most this many intervals; 1: never.",
    )
    trigger_files: tuple[Path, ...] = Field(
        default=(),
        description="Files whose change begins a cycle before `interval_s` has passed, such as one that the submit "
        "plugin touches.",
    )
    max_backoff_s: float = Field(
        default=60.0,
        gt=0,
        description="After failed cycles the pause doubles from one interval up to this many seconds.",
    )
    decide_timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="A decision that takes longer is given up and the fallback decides; systemd's watchdog is longer.",
    )
    checks_every_s: float = Field(
        default=300.0, ge=0, description="How often the checks of `cpsched doctor` are repeated; 0: never."
    )


class StartSettings(Section):
    """What counts as a start, and when to give up."""

    timeout_s: int = Field(
        default=15, gt=0, description="A released job not seen running after this long is held again."
    )
    max_failures: int = Field(
        default=5,
        gt=0,
        description="After this many failed attempts in a row a job is left to the cluster's own scheduler.",
    )
    adopt: bool = Field(
        default=True,
        description="Hold pending jobs that nobody holds; false where the submit plugin holds every new job.",
    )


class CircuitBreakerSettings(Section):
    """When the bridge pauses by itself: it releases all jobs to the cluster's scheduler until `cpsched resume`."""

    failing_users: int = Field(
        default=3,
        ge=2,
        description="Pause when at least this many users, and a majority of all users, have only failed starts.",
    )


class LeaseSettings(Section):
    """The lease on the cluster that the bridge in control holds."""

    duration_s: float = Field(
        default=120.0,
        gt=0,
        description="Another bridge's lease expires this long after its last renewal; it is renewed six times as "
        "often. Longer than `cycle.max_backoff_s` and `cycle.decide_timeout_s`, and the same for all bridges of a "
        "cluster.",
    )


class AdviseSettings(Section):
    """How far mode advise goes; in the other modes nobody is advised."""

    max_boost: int = Field(
        default=1000,
        gt=0,
        description="The most that a job's priority is raised: it passes another job of its tier only where the "
        "cluster's own priorities of the two differ by less than this.",
    )
    every_s: float = Field(default=30.0, gt=0, description="Seconds from one look at the cluster's order to the next.")


class MetricsSettings(Section):
    """The endpoint for Prometheus."""

    enabled: bool = Field(default=True, description="Serve /metrics, /healthz and /readyz.")
    host: str = Field(
        default="127.0.0.1", description="Address to listen on; the default is reachable from this host only."
    )
    port: int = Field(default=9764, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")


class PageSettings(Section):
    """The status page for people, served where the metrics are."""

    enabled: bool = Field(default=True, description="Serve the status page, and the API under /api/v1.")
    hosts: tuple[str, ...] = Field(
        default=(),
        description="Names by which a reverse proxy asks for the page, beside addresses and localhost.",
    )
    users: Literal["show", "hide"] = Field(
        default="show", description="hide: no names of users, accounts and jobs, on the page and in its JSON."
    )
    user_header: str = Field(
        default="",
        description="Header in which a reverse proxy says who reads, such as X-Remote-User: each reader sees his own "
        "jobs alone, and who comes otherwise sees nothing. Empty: everybody sees everything.",
    )
    trusted_proxies: tuple[str, ...] = Field(
        default=(), description="Addresses or networks of the proxies whose `user_header` is believed."
    )
    operators: tuple[str, ...] = Field(default=(), description="Readers by `user_header` who see everybody's jobs.")

    @field_validator("user_header")
    @classmethod
    def _is_a_header(cls, value: str) -> str:
        return checked_header(value)

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            network_of(each)
        return value

    @field_validator("operators")
    @classmethod
    def _are_users(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(checked_user, value))


class JournalSettings(Section):
    """How much of the past is kept."""

    max_mib: float = Field(default=2048.0, gt=0, description="Size of the journal's data; the oldest rounds go first.")
    keep_days: float = Field(default=30.0, gt=0, description="How long rounds and events are kept, if there is room.")
    keep_jobs_days: float = Field(default=30.0, gt=0, description="How long the ledger remembers jobs that are over.")


class Settings(Section):
    """The whole file."""

    mode: Literal["shadow", "advise", "control"] = Field(
        default="shadow",
        description="shadow decides and records and writes nothing to the cluster; advise tells the cluster's own "
        "scheduler in which order to start jobs, and holds none; control starts jobs.",
    )
    adapter: str = Field(
        default="slurm",
        description="The kind of cluster to stand beside: slurm, pbs, mock, a plug-in's name, or package.module.",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The adapter's own settings.")
    state_dir: Path = Field(
        default=Path("/var/lib/cpsched"),
        description="Where ledger, journal and lock live: it survives a reboot, and belongs to the bridge's user.",
    )
    heartbeat: Path | None = Field(
        default=None, description="File touched after every good cycle; `heartbeat` in state_dir if not given."
    )
    on_stop: Literal["release", "keep"] = Field(
        default="release",
        description="What a stopping bridge does with held jobs: release them, or keep them for a restart.",
    )
    durable: bool = Field(
        default=True, description="The ledger survives a power failure, at two disk flushes per change."
    )
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="Log lines: text on a terminal, else JSON."
    )
    policy: PolicySettings = Field(default_factory=PolicySettings)
    cycle: CycleSettings = Field(default_factory=CycleSettings)
    start: StartSettings = Field(default_factory=StartSettings)
    advise: AdviseSettings = Field(default_factory=AdviseSettings)
    circuit_breaker: CircuitBreakerSettings = Field(default_factory=CircuitBreakerSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    page: PageSettings = Field(default_factory=PageSettings)
    journal: JournalSettings = Field(default_factory=JournalSettings)
    _tree: YamlTree | None = PrivateAttr(default=None)
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    def __eq__(self, other: object) -> bool:
        """Where a setting was written makes no difference."""
        return isinstance(other, Settings) and self.model_dump() == other.model_dump()

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each old setting of the file, ignored or renamed: file, line, and what to write instead."""
        return self._warnings

    def adapter_options(self, model: type[S], where: str) -> S:
        """`options` as the adapter's own model; raises `SettingsError` naming file, line, field, value and rule."""
        tree = self._tree or YamlTree(Path(where), {}, None)
        return _parsed(tree, model, ("options",), self.options)

    def located(self, error: InvalidSetting, where: str = "settings") -> SettingsError:
        """The error with file and line; `where` stands for a file where the settings come from none."""
        tree = self._tree or YamlTree(Path(where), {}, None)
        return SettingsError(str(tree.wrong(error.where, error.value, error.rule)))

    @property
    def serves_page(self) -> bool:
        """Whether the status page is served: on other addresses than loopback only if it knows who reads."""
        loopback = self.metrics.host in ("localhost", "::1") or self.metrics.host.startswith("127.")
        return self.page.enabled and (loopback or bool(self.page.user_header))

    @property
    def heartbeat_path(self) -> Path:
        """The heartbeat file."""
        return self.heartbeat if self.heartbeat is not None else self.state_dir / "heartbeat"


def load(path: Path) -> Settings:
    """The settings of a file; raises `SettingsError`: `file:line: field: value: rule`.

    A file that says nothing is refused: it would mean a real Slurm, beside which nobody asked to stand.
    """
    try:
        tree = read_tree(path)
        if tree.content is None:
            raise tree.wrong((), "empty", "must name a setting, at least `adapter: slurm` or `adapter: mock`")
        if not isinstance(tree.content, dict):
            raise tree.wrong((), type(tree.content).__name__, "must be a mapping of settings")
    except SimulationError as error:
        raise SettingsError(str(error)) from error
    try:
        warnings = (*_taken_out(tree), *_renamed(tree))
    except SimulationError as error:
        raise SettingsError(str(error)) from error
    settings = _parsed(tree, Settings)
    settings._tree, settings._warnings = tree, warnings  # noqa: SLF001
    return settings


def _holder_of(tree: YamlTree, name: str) -> dict[str, Any] | None:
    """The mapping of the file in which a setting stands; None where the file does not set it."""
    *sections, last = name.split(".")
    holder = tree.content
    for section in sections:
        holder = holder.get(section) if isinstance(holder, dict) else None
    return holder if isinstance(holder, dict) and last in holder else None


def _taken_out(tree: YamlTree) -> Iterator[str]:
    """Take the retired settings out of the content of a file, with a line on each."""
    adapter = tree.content.get("adapter", Settings.model_fields["adapter"].default)
    for name, setting in RETIRED_SETTINGS.items():
        if setting.adapter not in ("", adapter):
            continue
        if (holder := _holder_of(tree, name)) is not None:
            above, _, last = name.rpartition(".")
            rule = f"is ignored: removed in version {setting.removed_in}; {setting.instead}"
            yield str(tree.wrong(name.split("."), plain_text(holder.pop(last)), rule))
            if above and not holder and above not in Settings.model_fields:
                del tree.content[above]


def _renamed(tree: YamlTree) -> Iterator[str]:
    """Give the settings of a file their new names and words, with a line on each old one."""
    for name, setting in RENAMED.items():
        if (holder := _holder_of(tree, name)) is None:
            continue
        old, new, last = name.split("."), setting.new.split("."), name.rpartition(".")[2]
        value = holder[last]
        word = setting.values.get(value, value) if isinstance(value, str) else value
        if name == setting.new and word == value:
            continue
        if name != setting.new and _holder_of(tree, setting.new) is not None:
            raise tree.wrong(
                old, plain_text(value), f"must not be set beside {setting.new}, its name since {setting.renamed_in}"
            )
        write = setting.new if isinstance(word, dict | list) else f"{setting.new}: {word}"
        yield str(tree.wrong(old, plain_text(value), f"is renamed since {setting.renamed_in}: write `{write}`"))
        holder[last] = word
        if name != setting.new:
            tree.move(old, new)


def parse(model: type[S], content: dict[str, Any], where: str) -> S:
    """`content` as `model`, for settings that come from no file of their own; raises `SettingsError`."""
    return _parsed(YamlTree(Path(where), content), model)


def _parsed(tree: YamlTree, model: type[S], at: tuple[str, ...] = (), content: dict[str, Any] | None = None) -> S:
    try:
        return tree.as_model(model, at, content)
    except SimulationError as error:
        raise SettingsError(str(error)) from error


def _as_texts(settings: dict[str, str | int | float | bool]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}
