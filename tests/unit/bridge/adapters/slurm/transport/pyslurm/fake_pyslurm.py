"""A stand-in for pyslurm, loaded by the real child process in tests of the protocol.

Its cluster is a JSON file named by FAKE_SLURM: {"jobs": {"7": {...}}, "log": [...]}; "hang", "waits" (until it is
set otherwise), "crash", "raise" and "starts" make it misbehave. Every change is written back, so that a test and
several children see the same cluster.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

PATH = Path(os.environ["FAKE_SLURM"])
__version__ = "25.11.2"


class RPCError(Exception):
    pass


def world() -> dict[str, Any]:
    return json.loads(PATH.read_text())


def save(changed: dict[str, Any]) -> None:
    PATH.write_text(json.dumps(changed))


def misbehave(call: str) -> None:
    now = world()
    if now.get("hang") == call:
        time.sleep(600)
    while world().get("waits") == call:
        time.sleep(0.05)
    if now.get("crash") == call:
        os.kill(os.getpid(), signal.SIGSEGV)
    if now.get("raise", {}).get(call):
        raise RPCError(now["raise"][call])


JOB = {
    "state": "PENDING",
    "user_id": 2001,
    "user_name": "alice",
    "state_reason": "JobHeldAdmin",
    "priority": 0,
    "admin_comment": "bridge:wait",
    "comment": "bridge:wait",
    "requeue_count": 0,
    "array_id": None,
    "array_task_id": None,
    "array_tasks_waiting": None,
    "required_nodes": None,
}


class Record:
    """A job; a fact that reads {"bytes": "fffe"} is not a text, and {"broken": words} cannot be read at all."""

    def __init__(self, number: int, facts: dict[str, Any]) -> None:
        self.id = number
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        if name not in self.facts:
            raise AttributeError(name)
        value = self.facts[name]
        if isinstance(value, dict) and "bytes" in value:
            return bytes.fromhex(value["bytes"]).decode()
        if isinstance(value, dict) and "broken" in value:
            raise OverflowError(value["broken"])
        return value


def job(number: str, facts: dict[str, Any]) -> Any:
    return Record(int(number), {**JOB, **facts})


class Jobs:
    @staticmethod
    def load() -> dict[int, Any]:
        misbehave("jobs")
        if len(world().get("log", ())) >= world().get("breaks_after", 1 << 30):
            raise RPCError("Unable to contact slurm controller (connect failure)")
        return {int(n): job(n, facts) for n, facts in world()["jobs"].items()}


class JobSubmitDescription:
    def __init__(self, **changes: Any) -> None:
        self.changes = changes


class Job:
    def __init__(self, number: int) -> None:
        self.number = number

    @staticmethod
    def load(number: int) -> Any:
        found = world()["jobs"].get(str(number))
        if found is None:
            raise RPCError("Invalid job id specified")
        return job(str(number), found)

    def modify(self, description: JobSubmitDescription) -> None:
        misbehave("modify")
        now = world()
        if now.get("starts") == self.number:  # Slurm starts it at this very moment, and says that the hold is done
            now["jobs"][str(self.number)]["state"] = "RUNNING"
        now["jobs"][str(self.number)].update(description.changes)
        now.setdefault("log", []).append([self.number, description.changes])
        save(now)


class Nodes:
    @staticmethod
    def load() -> dict[str, Any]:
        return {}
