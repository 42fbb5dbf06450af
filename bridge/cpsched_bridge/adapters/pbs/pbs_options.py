"""PBS's section of the settings file, and the construction of its backend."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.pbs.transport.pbs_commands import QUEUE
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsPrograms
from cpsched_bridge.ports import Capabilities
from cpsched_bridge.settings import Section

DECIDE_S = 0.1
"""Default time limit in seconds of a decision for a PBS cluster."""


class Options(Section):
    """The managed queues, the folder that contains PBS's commands, and their time limits."""

    queues: tuple[str, ...] = Field(
        default=("workq",),
        description="The execution queues whose jobs the bridge decides on; it closes them to PBS's own scheduler "
        "while it is in control, and opens them when it is not.",
    )
    left_queue: str = Field(
        default="",
        description="A started execution queue to which the bridge moves the jobs that it leaves to PBS. Required in "
        "control mode.",
    )
    bin: str = Field(default="", description="Folder of PBS's commands; empty: they are on the path.")
    deadline_s: float = Field(
        default=10.0, gt=0, description="Time limit of a PBS command, in seconds; after that it is killed."
    )
    starting_s: float = Field(
        default=20.0,
        gt=0,
        description="Time limit of one cycle's starts or boosts, in seconds; the rest waits for the next cycle.",
    )
    history_deadline_s: float = Field(
        default=60.0, gt=0, description="Time limit for the list of ended jobs, read once at start, in seconds."
    )

    @field_validator("queues", "left_queue")
    @classmethod
    def _are_names(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        names = [value] if isinstance(value, str) else value
        if any(name and not re.fullmatch(QUEUE, name) for name in names) or len(set(names)) < len(names):
            raise ValueError("must name queues, each once: letters, digits, '_', '-' and '.'")
        return value


def connect(options: Options) -> PbsBackend:
    """Return the backend, which connects to the server on its first call."""
    programs = PbsPrograms(options.bin, options.deadline_s)
    return PbsBackend(programs, options.queues, options.left_queue, options.starting_s, options.history_deadline_s)


def can(options: Options) -> Capabilities:
    """Return the adapter's capabilities: limits and boosts, but not PBS's job order."""
    return Capabilities(limits=True, boosts=True, decision_limit_s=DECIDE_S)
