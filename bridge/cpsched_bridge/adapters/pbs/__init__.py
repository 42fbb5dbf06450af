"""Define the PBS section of the settings file, and create the PBS backend."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.pbs.transport.pbs_commands import QUEUE_PATTERN
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsProgramRunner
from cpsched_bridge.ports import Capabilities
from cpsched_bridge.settings import Section

DEFAULT_DECISION_LIMIT_S = 0.1
"""Default time limit for a decision on a PBS cluster, in seconds."""


class Options(Section):
    """The options in the PBS adapter's section of the settings file."""

    queues: tuple[str, ...] = Field(
        default=("workq",),
        description="Execution queues that the bridge manages. They are closed to PBS's own scheduler "
        "while the bridge is in control, and open otherwise.",
    )
    left_queue: str = Field(
        default="",
        description="Started execution queue for the jobs that the bridge does not manage. Required in control mode.",
    )
    bin: str = Field(default="", description="Folder that contains PBS's commands; empty: search PATH.")
    deadline_s: float = Field(
        default=10.0, gt=0, description="Time limit for a PBS command, in seconds; slower commands are killed."
    )
    starting_s: float = Field(
        default=20.0,
        gt=0,
        description="Time limit for the starts or boosts of one cycle, in seconds; the next cycle sends the rest.",
    )
    history_deadline_s: float = Field(
        default=60.0, gt=0, description="Time limit for reading the ended jobs at startup, in seconds."
    )

    @field_validator("queues", "left_queue")
    @classmethod
    def _validate_queue_names(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        names = [value] if isinstance(value, str) else value
        if any(name and not re.fullmatch(QUEUE_PATTERN, name) for name in names) or len(set(names)) < len(names):
            raise ValueError("must be distinct queue names that consist of letters, digits, '_', '-' and '.'")
        return value


def connect(options: Options) -> PbsBackend:
    """Return the backend, which connects to the server on its first call."""
    programs = PbsProgramRunner(options.bin, options.deadline_s)
    return PbsBackend(programs, options.queues, options.left_queue, options.starting_s, options.history_deadline_s)


def can(options: Options) -> Capabilities:
    """Return the adapter's capabilities: limits and boosts, but not PBS's job order."""
    return Capabilities(limits=True, boosts=True, decision_limit_s=DEFAULT_DECISION_LIMIT_S)
