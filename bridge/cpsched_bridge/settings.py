"""The settings file of the bridge: YAML, every field with a sentence, errors that name the file and the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cpsched.overrun import Overrun
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.errors import SettingsError

S = TypeVar("S", bound=BaseModel)


class Section(BaseModel):
    """A part of the settings file: unknown fields are errors, not typos that go unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PolicySettings(Section):
    """What decides."""

    dispatcher: str = Field(
        default="easy", description="Dispatcher by name (`cpsched dispatchers` lists them) or package.module:Class."
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
    overrun: Overrun = Field(
        default="one-second", description="What a running job is assumed to do when it outlives its estimate."
    )

    def spec(self) -> PolicySpec:
        """The same as the policy in words that is built and journalled."""
        return PolicySpec(
            self.dispatcher,
            self.predictor,
            _as_texts(self.dispatcher_settings),
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
    max_backoff_s: float = Field(
        default=60.0,
        gt=0,
        description="After failed cycles the pause doubles from one interval up to this many seconds.",
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


class GuardSettings(Section):
    """When the bridge stands down: it gives all jobs back and waits for `cpsched resume`."""

    window_s: float = Field(default=300.0, gt=0, description="Failures are counted over this many past seconds.")
    max_failed_starts: int = Field(
        default=50,
        gt=0,
        description="Failed starts in the window at which the bridge stands down, if most starts failed.",
    )
    max_failed_decisions: int = Field(
        default=5, gt=0, description="Decisions in a row that raised or broke a rule at which the bridge stands down."
    )


class MetricsSettings(Section):
    """The endpoint for Prometheus."""

    enabled: bool = Field(default=True, description="Serve /metrics.")
    host: str = Field(
        default="127.0.0.1", description="Address to listen on; the default is reachable from this host only."
    )
    port: int = Field(default=9764, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")


class JournalSettings(Section):
    """How much of the past is kept."""

    max_mib: float = Field(default=512.0, gt=0, description="Size of the journal's data; the oldest rounds go first.")
    keep_jobs_days: float = Field(default=30.0, gt=0, description="How long the ledger remembers jobs that are over.")


class Settings(Section):
    """The whole file."""

    mode: Literal["shadow", "control"] = Field(
        default="shadow",
        description="shadow decides and records and writes nothing to the cluster; control starts jobs.",
    )
    adapter: str = Field(
        default="slurm",
        description="The kind of cluster to stand beside: slurm, mock, a plug-in's name, or package.module.",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The adapter's own settings.")
    state_dir: Path = Field(default=Path("/var/lib/cpsched"), description="Where ledger, journal and lock live.")
    heartbeat: Path | None = Field(
        default=None, description="File touched after every good cycle; `heartbeat` in state_dir if not given."
    )
    on_stop: Literal["hand-back", "keep"] = Field(
        default="hand-back",
        description="What a stopping bridge does with held jobs: give them back, or keep for a restart.",
    )
    durable: bool = Field(
        default=True, description="The ledger survives a power failure, at one disk flush per change."
    )
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="Log lines: text on a terminal, else JSON."
    )
    policy: PolicySettings = Field(default_factory=PolicySettings)
    cycle: CycleSettings = Field(default_factory=CycleSettings)
    start: StartSettings = Field(default_factory=StartSettings)
    guard: GuardSettings = Field(default_factory=GuardSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    journal: JournalSettings = Field(default_factory=JournalSettings)

    @property
    def heartbeat_path(self) -> Path:
        """The heartbeat file."""
        return self.heartbeat if self.heartbeat is not None else self.state_dir / "heartbeat"


def load(path: Path) -> Settings:
    """The settings of a file; raises `SettingsError` naming the file, the field and the rule."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict | None):
        raise SettingsError(f"{path}: must be a mapping of settings, not {type(content).__name__}")
    return parse(Settings, content or {}, str(path))


def parse(model: type[S], content: dict[str, Any], where: str) -> S:
    """`content` as `model`; raises `SettingsError` with one line per wrong field."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise SettingsError("\n".join(_line(where, detail) for detail in error.errors())) from error


def _line(where: str, detail: Any) -> str:
    field = ".".join(str(part) for part in detail["loc"])
    rule = "no such setting" if detail["type"] == "extra_forbidden" else detail["msg"]
    value = "" if isinstance(detail["input"], dict) else f"={detail['input']!r}"
    return f"{where}: {field}{value}: {rule}"


def _as_texts(settings: dict[str, str | int | float | bool]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}
