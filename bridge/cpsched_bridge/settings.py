"""Define and load the bridge's settings file (YAML); errors state file and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cpsched.errors import CpschedError, InvalidValue
from cpsched.goal_presets import Goal
from cpsched.model import PowerCap
from cpsched.model.overrun import Overrun
from cpsched.policy_spec import PolicySpec
from cpsched.registry import DISPATCHERS
from cpsched_bridge.errors import InvalidSetting, SettingsError
from cpsched_bridge.ports import Capabilities
from cpsched_bridge.users import parse_trusted_network, validate_user_header, validate_user_name
from cpsched_sim.errors import SimulationError
from cpsched_sim.input.yaml_tree import YamlTree, read_yaml_tree, value_for_message

S = TypeVar("S", bound=BaseModel)
NO_CAPABILITIES = Capabilities()
MAX_NUMBER = 1_000_000_000
"""Largest absolute value of a number in the settings: 31 years in seconds."""


class Section(BaseModel):
    """A part of the settings file. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _check_boolean_or_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Return `value`. Reject a number for a boolean, and a boolean for a number."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if kind is bool and not isinstance(value, bool):
            raise PydanticCustomError("bool_type", "must be true or false")
        if isinstance(value, bool) and kind in (int, float, int | None, float | None):
            raise PydanticCustomError("float_type", "must be a number")
        return value

    @field_validator("*")
    @classmethod
    def _check_range(cls, value: Any) -> Any:
        if isinstance(value, int | float) and abs(value) > MAX_NUMBER:
            raise ValueError(f"must be within {MAX_NUMBER:,}")
        return value


class PowerCapSettings(Section):
    """A power cap. It applies to every dispatcher and to the fallback."""

    cap_w: int | None = Field(
        default=None, gt=0, description="Maximum total power of all running jobs, in watts; null: no cap."
    )
    watts: dict[str, int] = Field(
        default_factory=dict,
        description="Assumed power in watts per requested amount of a resource, by resource name.",
    )

    @model_validator(mode="after")
    def _check_both_set(self) -> PowerCapSettings:
        if (self.cap_w is None) != (not self.watts):
            raise ValueError("cap_w and watts must be set together")
        return self

    def to_power_cap(self) -> PowerCap | None:
        """Return the power cap, or None if no cap is set."""
        return None if self.cap_w is None else PowerCap.of(self.cap_w, self.watts)


class PolicySettings(Section):
    """The policy: goal, dispatcher, predictor and fallback."""

    goal: str | dict[str, float] | None = Field(
        default=None,
        description="The site's goal: `waits`, `balance` or `large-jobs`, or metrics with weights, such as "
        "`{bsld: 2, awf: 1}`; null: the objective in `dispatcher_settings`, by "
        "default `balance`.",
    )
    dispatcher: str = Field(
        default="lookahead",
        description="Dispatcher by name (`cpsched dispatchers` lists them) or package.module:Class.",
    )
    dispatcher_settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="The dispatcher's parameters by name; see `cpsched dispatchers`."
    )
    predictor: str = Field(
        default=PolicySpec().predictor,
        description="Predictor by name (`cpsched predictors` lists them) or package.module:Class.",
    )
    predictor_settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="The predictor's parameters by name; see `cpsched predictors`."
    )
    overrun: Overrun | None = Field(
        default=None,
        description="Assumption for a running job that exceeds its estimate; "
        "null: the dispatcher's default (one-second for those of cp19, pcp20 and mod17, walltime for all others).",
    )
    fallback: str = Field(
        default=PolicySpec().dispatcher,
        description="Dispatcher that decides if the policy hangs or fails, with walltimes as estimates; `none`: no "
        "fallback.",
    )
    isolation: Literal["auto", "process", "none"] = Field(
        default="auto",
        description="process: run the dispatcher in its own process, which is killed if it hangs; none: run it "
        "in the "
        "bridge's process; auto: process, unless the dispatcher is the fallback.",
    )
    least_stranded_gpus: bool = Field(
        default=False,
        description="Among nodes of equal weight, choose those on which fewest GPUs become useless for the typical "
        "jobs of the last 28 days.",
    )

    power: PowerCapSettings = Field(default_factory=PowerCapSettings)

    @field_validator("goal")
    @classmethod
    def _check_goal(cls, value: Any) -> Any:
        try:
            Goal.of(value)
        except InvalidValue as error:
            raise ValueError(error.rule) from error
        except CpschedError as error:
            raise ValueError(str(error)) from error
        return value

    def derive_goal_settings(self) -> dict[str, str]:
        """Return the dispatcher settings that the goal implies, or {} if there is no goal."""
        return {} if self.goal is None else {"objective": Goal.of(self.goal).objective}

    @property
    def has_fallback(self) -> bool:
        """Whether a fallback is configured."""
        return self.fallback != "none"

    @property
    def is_isolated(self) -> bool:
        """Whether the dispatcher runs in its own process."""
        return self.isolation == "process" or (self.isolation == "auto" and self.dispatcher != self.fallback)

    def to_fallback_spec(self, can: Capabilities = NO_CAPABILITIES) -> PolicySpec:
        """Return the specification of the fallback, without predictor or learned state."""
        return PolicySpec(
            self.fallback, dispatcher_settings=_derive_adapter_settings(self.fallback, can), overrun=self.overrun
        )

    def to_spec(self, can: Capabilities = NO_CAPABILITIES) -> PolicySpec:
        """Return the specification of the policy with an adapter, which the journal records.

        The goal's settings replace those that the adapter implies, and `dispatcher_settings` replace both.
        """
        return PolicySpec(
            self.dispatcher,
            self.predictor,
            {
                **_derive_adapter_settings(self.dispatcher, can),
                **self.derive_goal_settings(),
                **_convert_settings_to_text(self.dispatcher_settings),
            },
            _convert_settings_to_text(self.predictor_settings),
            self.overrun,
        )


def _derive_adapter_settings(dispatcher: str, can: Capabilities) -> dict[str, str]:
    """Return the dispatcher settings that the adapter implies.

    If the adapter ranks jobs, a dispatcher with a choice of order uses the site's order. A dispatcher with an objective
    gives the site's priorities the same weight as its objective. A dispatcher with an unset time limit gets the
    adapter's time limit.
    """
    if can == NO_CAPABILITIES:
        return {}
    offered, implied = DISPATCHERS.find(dispatcher).defaults(), dict[str, str]()
    if can.priorities and offered.get("order") == "reg":
        implied["order"] = "priority"
    if can.priorities and "site_weight" in offered:
        implied["site_weight"] = "1"
    if can.decision_limit_s is not None and "limit_s" in offered and offered["limit_s"] is None:
        implied["limit_s"] = str(can.decision_limit_s)
    return implied


class CycleSettings(Section):
    """The intervals and limits of cycles."""

    interval_s: float = Field(
        default=1.0, gt=0, description="Seconds from the start of one cycle to the start of the next."
    )
    max_commands: int = Field(
        default=500, gt=0, description="Maximum number of jobs per cycle for which commands are sent."
    )
    max_interval_factor: float = Field(
        default=5.0,
        ge=1,
        description="Maximum pause while the cluster is busy, in intervals; 1: no slowdown.",
    )
    trigger_files: tuple[Path, ...] = Field(
        default=(),
        description="Files whose change starts a cycle before `interval_s` has passed, for example a file that the "
        "submit plugin touches.",
    )
    max_backoff_s: float = Field(
        default=60.0,
        gt=0,
        description="Maximum pause after failed cycles, in seconds; the pause starts at one interval and doubles.",
    )
    decide_timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="Time limit for a decision, in seconds; then the fallback decides. "
        "Must be less than systemd's watchdog interval.",
    )
    checks_every_s: float = Field(
        default=300.0, ge=0, description="Seconds between runs of the `cpsched doctor` checks; 0: never."
    )


class FailedStartSettings(Section):
    """Rules for failed starts and for adopting jobs."""

    timeout_s: int = Field(
        default=15, gt=0, description="Seconds after which a released job that is not running is held again."
    )
    max_failures: int = Field(
        default=5,
        gt=0,
        description="Consecutive failed starts after which a job is left to the cluster's own scheduler.",
    )
    adopt: bool = Field(
        default=True,
        description="Whether to hold pending jobs that are not held; "
        "use false if the submit plugin holds every new job.",
    )


class CircuitBreakerSettings(Section):
    """The conditions for a pause, which releases all jobs until `cpsched resume`."""

    failing_users: int = Field(
        default=3,
        ge=2,
        description="Pause when at least this many users, and a majority of all users, have only failed starts.",
    )


class LeaseSettings(Section):
    """The lease that the bridge in control writes to the cluster."""

    duration_s: float = Field(
        default=120.0,
        gt=0,
        description="Seconds after its last renewal at which another bridge's lease expires; a bridge renews its lease "
        "six times "
        "in this period. Must exceed `cycle.max_backoff_s` and `cycle.decide_timeout_s`, and be equal on all bridges "
        "of a "
        "cluster.",
    )
    listen: str = Field(
        default="",
        description="host:port for messages of a second bridge, or empty. With `peer` and `secret_file`, it takes over "
        "within seconds of this bridge's last message.",
    )
    peer: str = Field(default="", description="host:port on which the second bridge listens.")
    secret_file: Path | None = Field(
        default=None, description="File with at least 16 random bytes, equal on both bridges, readable by its owner."
    )

    @field_validator("listen", "peer")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if value:
            parse_address(value)
        return value

    @model_validator(mode="after")
    def _check_all_set(self) -> LeaseSettings:
        if len({bool(self.listen), bool(self.peer), self.secret_file is not None}) > 1:
            raise ValueError("listen, peer and secret_file must be set together")
        return self


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`. Raise `ValueError` if the text has another form."""
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError("must be host:port")
    return host.strip("[]"), int(port)


class AdviseModeSettings(Section):
    """Limits of advise mode; ignored in the other modes."""

    max_boost: int = Field(
        default=1000,
        gt=0,
        description="Maximum boost of a job's priority. A job can overtake another job in its tier only if "
        "their own priorities differ by less than this value.",
    )
    every_s: float = Field(default=30.0, gt=0, description="Seconds between comparisons with the cluster's order.")


class PreemptionSettings(Section):
    """The bridge's choice of jobs to stop for others, with Slurm in control mode."""

    choose: bool = Field(
        default=False,
        description="Whether the bridge stops the jobs that lose the least work, instead of leaving the preemption to "
        "Slurm. It stops only jobs that Slurm may preempt, and never more of them.",
    )
    max_per_user_per_hour: int = Field(
        default=20,
        gt=0,
        description="Maximum number of preemptions per hour for one user's jobs; Slurm preempts for further jobs.",
    )
    max_per_job: int = Field(
        default=3,
        gt=0,
        description="Maximum number of times that the bridge stops the same job.",
    )
    max_per_hour: int = Field(
        default=100, gt=0, description="Maximum number of preemptions per hour; Slurm preempts for further jobs."
    )


class MetricsSettings(Section):
    """The HTTP endpoint for Prometheus."""

    enabled: bool = Field(default=True, description="Serve /metrics, /healthz and /readyz.")
    host: str = Field(
        default="127.0.0.1", description="Address to listen on; the default is reachable from this host only."
    )
    port: int = Field(default=9764, ge=0, le=65535, description="Port to listen on; 0: any free port.")


class StatusPageSettings(Section):
    """The status page, served on the address of the metrics."""

    enabled: bool = Field(default=True, description="Serve the status page and the API under /api/v1.")
    hosts: tuple[str, ...] = Field(
        default=(),
        description="Host names under which a reverse proxy serves the page, in addition to addresses and localhost.",
    )
    users: Literal["show", "hide"] = Field(
        default="show", description="hide: omit names of users, accounts and jobs from the page and its JSON."
    )
    user_header: str = Field(
        default="",
        description="Header in which a reverse proxy names the authenticated user, such as X-Remote-User. Users "
        "then see "
        "only their own jobs, and other requests are rejected. Empty: every reader sees all jobs.",
    )
    trusted_proxies: tuple[str, ...] = Field(
        default=(), description="Addresses or networks of the proxies from which `user_header` is accepted."
    )
    operators: tuple[str, ...] = Field(default=(), description="Users of `user_header` who see all jobs.")
    start_times_file: Path | None = Field(
        default=None,
        description="File for web portals, such as `start-times.json`, to which the answer of `/api/v1/jobs` is "
        "written once per minute, with the jobs of all users; null: none.",
    )

    @field_validator("user_header")
    @classmethod
    def _check_header(cls, value: str) -> str:
        return validate_user_header(value)

    @field_validator("trusted_proxies")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            parse_trusted_network(each)
        return value

    @field_validator("operators")
    @classmethod
    def _check_users(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(validate_user_name, value))


class RetentionSettings(Section):
    """How long records are kept."""

    max_mib: float = Field(
        default=2048.0, gt=0, description="Maximum size in MiB; the oldest rounds are deleted first."
    )
    keep_days: float = Field(default=30.0, gt=0, description="Days to keep rounds and events, within `max_mib`.")
    keep_jobs_days: float = Field(default=30.0, gt=0, description="Days to keep ended jobs in the ledger.")


class Settings(Section):
    """The whole settings file."""

    mode: Literal["shadow", "advise", "control"] = Field(
        default="shadow",
        description="shadow: decide and record, write nothing to the cluster; advise: raise priorities, and the "
        "cluster's own scheduler starts the jobs; control: hold and start jobs.",
    )
    adapter: str = Field(
        default="slurm",
        description="Adapter for the cluster: slurm, pbs, mock, the name of a plug-in, or package.module.",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The adapter's settings.")
    state_dir: Path = Field(
        default=Path("/var/lib/cpsched"),
        description="Folder for ledger, journal and lock; it must survive a reboot and belong to the bridge's user.",
    )
    heartbeat: Path | None = Field(
        default=None, description="File touched after every successful cycle; null: `heartbeat` in `state_dir`."
    )
    on_stop: Literal["release", "keep"] = Field(
        default="release",
        description="Action for held jobs when the bridge stops: release them, or keep them for a restart.",
    )
    durable: bool = Field(
        default=True,
        description="Protect the ledger against power failure, at the cost of two disk flushes per change.",
    )
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="Format of log lines; auto: text on a terminal, otherwise JSON."
    )
    policy: PolicySettings = Field(default_factory=PolicySettings)
    cycle: CycleSettings = Field(default_factory=CycleSettings)
    start: FailedStartSettings = Field(default_factory=FailedStartSettings)
    advise: AdviseModeSettings = Field(default_factory=AdviseModeSettings)
    preemption: PreemptionSettings = Field(default_factory=PreemptionSettings)
    circuit_breaker: CircuitBreakerSettings = Field(default_factory=CircuitBreakerSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    page: StatusPageSettings = Field(default_factory=StatusPageSettings)
    journal: RetentionSettings = Field(default_factory=RetentionSettings)
    _tree: YamlTree | None = PrivateAttr(default=None)

    def __eq__(self, other: object) -> bool:
        """Return whether the values are equal, even if they come from different files."""
        return isinstance(other, Settings) and self.model_dump() == other.model_dump()

    def parse_adapter_options(self, model: type[S], where: str) -> S:
        """Return `options` as the adapter's model. Raise `SettingsError` with location."""
        tree = self._tree or YamlTree(Path(where), {}, None)
        return _parse_model(tree, model, ("options",), self.options)

    def add_location_to_error(self, error: InvalidSetting, where: str = "settings") -> SettingsError:
        """Return the error with file and line, or with `where` if settings have no file."""
        tree = self._tree or YamlTree(Path(where), {}, None)
        return SettingsError(str(tree.make_error(error.where, error.value, error.rule)))

    @property
    def serves_page(self) -> bool:
        """Whether the page is served, which requires loopback or `page.user_header`."""
        loopback = self.metrics.host in ("localhost", "::1") or self.metrics.host.startswith("127.")
        return self.page.enabled and (loopback or bool(self.page.user_header))

    @property
    def heartbeat_path(self) -> Path:
        """The path of the heartbeat file."""
        return self.heartbeat if self.heartbeat is not None else self.state_dir / "heartbeat"


def load_settings(path: Path) -> Settings:
    """Read a settings file. Raise `SettingsError` as `file:line: field: value: rule`.

    An empty file is an error, because the defaults refer to a real Slurm cluster.
    """
    try:
        tree = read_yaml_tree(path)
        if tree.content is None:
            raise tree.make_error((), "empty", "must contain at least `adapter: slurm` or `adapter: mock`")
        if not isinstance(tree.content, dict):
            raise tree.make_error((), value_for_message(tree.content), "must be a mapping of settings")
    except SimulationError as error:
        raise SettingsError(str(error)) from error
    settings = _parse_model(tree, Settings)
    settings._tree = tree  # noqa: SLF001
    return settings


def validate_section_content(model: type[S], content: dict[str, Any], where: str) -> S:
    """Return `content`, which comes from no settings file, as a model.

    Raise `SettingsError` if it is invalid.
    """
    return _parse_model(YamlTree(Path(where), content), model)


def _parse_model(tree: YamlTree, model: type[S], at: tuple[str, ...] = (), content: dict[str, Any] | None = None) -> S:
    try:
        return tree.to_model(model, at, content)
    except SimulationError as error:
        raise SettingsError(str(error)) from error


def _convert_settings_to_text(settings: dict[str, str | int | float | bool]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}
