"""Run pyslurm in its own process, and answer calls over a socket.

    python -m cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_worker FD PARENT_PID [PYSLURM_MODULE]

pyslurm needs its own process because it holds the interpreter lock while it waits for the controller, may crash, and is
licensed under the GPL. The child dies with its parent, even during a call, so that two bridges never send commands at
the same time.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.transport.programs.slurm_program_calls import may_command_have_taken_effect
from cpsched_bridge.adapters.slurm.transport.pyslurm import wire_protocol
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import Table, to_job_table, to_node_table
from cpsched_bridge.socket_child_process import prepare_child_process

Calls = dict[str, Callable[..., Any]]


def load_pyslurm_calls(module: str) -> Calls:
    """Import pyslurm, and return the calls available to the parent, by name."""
    return make_calls(importlib.import_module(module))


def make_calls(pyslurm: Any) -> Calls:
    """Return the calls by name. Each call takes and returns plain values."""

    def version() -> str:
        return str(getattr(pyslurm, "__version__", ""))

    def jobs(numbers: Sequence[int] | None = None) -> Table:
        """Return all jobs, or the jobs and arrays with these numbers."""
        loaded = pyslurm.Jobs.load().values()
        if numbers is not None:
            loaded = [job for job in loaded if job.id in numbers or job.array_id in numbers]
        return to_job_table(loaded)

    def job(number: int) -> Table:
        return to_job_table([pyslurm.Job.load(number)])

    def nodes() -> Table:
        return to_node_table(pyslurm.Nodes.load().values())

    def modify(number: int, changes: Record) -> None:
        pyslurm.Job(number).modify(pyslurm.JobSubmitDescription(**changes))

    return {call.__name__: call for call in (version, jobs, job, nodes, modify)}


def handle_request(known: Callable[[], Calls], request: Record) -> Record:
    """Return the reply to one request.

    An exception becomes {"error": kind, "detail": text}.
    """
    try:
        return {"result": known()[request["call"]](**request["arguments"])}
    except ImportError as error:
        return {"error": "refused", "detail": f"pyslurm cannot be imported: {error}"}
    except Exception as error:
        text = str(error) or type(error).__name__
        if "timed out" in text.lower():
            return {"error": "timeout", "detail": text}
        return {"error": "unavailable" if may_command_have_taken_effect(text) else "refused", "detail": text}


def serve(channel: socket.socket, module: str) -> None:
    """Import pyslurm, then answer requests until the parent closes the channel.

    If the import fails, each answer reports the failure.
    """
    known = cache(lambda: load_pyslurm_calls(module))
    with contextlib.suppress(Exception):
        known()
    with contextlib.suppress(wire_protocol.WorkerChannelClosed):
        wire_protocol.send_frame(channel, wire_protocol.READY_FRAME)
        while True:
            wire_protocol.send_frame(channel, handle_request(known, wire_protocol.receive_frame(channel)))


def main(arguments: list[str]) -> None:
    """Run the child process."""
    prepare_child_process(int(arguments[1]))
    os.environ["SLURM_BITSTR_LEN"] = "0"  # list all tasks of an array, not only the first 64 characters
    module = arguments[2] if len(arguments) > 2 else "pyslurm"
    serve(socket.socket(fileno=int(arguments[0])), module)


if __name__ == "__main__":
    main(sys.argv[1:])
