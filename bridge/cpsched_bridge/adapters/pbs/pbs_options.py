"""PBS's part of the settings file, and the backend that it asks for."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.pbs.transport.pbs_commands import QUEUE
from cpsched_bridge.adapters.pbs.transport.pbs_programs import Programs
from cpsched_bridge.ports import Capabilities
from cpsched_bridge.settings import Section

DECIDE_S = 0.1
"""How long a decision may take beside PBS's server, where a dispatcher has no limit of its own."""


class Options(Section):
    """Which queues the bridge manages, where PBS's commands are, and how long they may take."""

    queues: tuple[str, ...] = Field(
        default=("workq",),
        description="The execution queues whose jobs the bridge decides on; it closes them to PBS's own scheduler "
        "while it is in control, and opens them when it is not.",
    )
    left_queue: str = Field(
        default="",
        description="A started execution queue into which jobs are moved that the bridge does not start; control mode "
        "needs one.",
    )
    bin: str = Field(default="", description="The folder of PBS's commands; empty: they are on the path.")
    deadline_s: float = Field(
        default=10.0, gt=0, description="How long PBS's server may take to answer; after that the command is killed."
    )
    starting_s: float = Field(
        default=20.0,
        gt=0,
        description="How long the starts of one cycle, or its advice, may take; the others wait for the next one.",
    )
    history_deadline_s: float = Field(
        default=60.0, gt=0, description="How long PBS's server may take to tell of ended jobs, asked once at start."
    )

    @field_validator("queues", "left_queue")
    @classmethod
    def _are_names(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        names = [value] if isinstance(value, str) else value
        if any(name and not re.fullmatch(QUEUE, name) for name in names) or len(set(names)) < len(names):
            raise ValueError("must name queues, each once: letters, digits, '_', '-' and '.'")
        return value


def connect(options: Options) -> PbsBackend:
    """The backend; the server is reached with the first call."""
    programs = Programs(options.bin, options.deadline_s)
    return PbsBackend(programs, options.queues, options.left_queue, options.starting_s, options.history_deadline_s)


def can(options: Options) -> Capabilities:
    """Return what the adapter can do: it knows limits and can advise, and does not follow PBS's own order."""
    return Capabilities(limits=True, boosts=True, decision_limit_s=DECIDE_S)
