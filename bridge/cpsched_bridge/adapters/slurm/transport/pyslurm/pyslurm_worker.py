"""Run pyslurm in its own process, and answer calls over a socket.

    python -m cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_worker FD PARENT_PID

pyslurm needs its own process because it holds the interpreter lock while it waits for the controller, may crash, and is
licensed under the GPL. The child dies with its parent, even during a call, so that two bridges never send commands at
the same time.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import may_command_have_taken_effect
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmCall
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import Table, to_job_table, to_node_table
from cpsched_bridge.child_server import serve_requests
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused

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


def make_call_handler(module: str, report: Callable[[str], None]) -> Callable[[PyslurmCall], Any]:
    """Import pyslurm, and return the function that answers calls.

    If the import fails, each call repeats it and fails.
    """
    known = cache(lambda: load_pyslurm_calls(module))
    with contextlib.suppress(Exception):
        known()
    return lambda call: known()[call.name](**call.arguments)


def to_backend_error(error: Exception) -> BackendError:
    """Return the answer to a call that raised `error`."""
    if isinstance(error, ImportError):
        return CommandRefused(f"pyslurm cannot be imported: {error}")
    text = str(error) or type(error).__name__
    if "timed out" in text.lower():
        return BackendTimeout(text)
    return BackendUnavailable(text) if may_command_have_taken_effect(text) else CommandRefused(text)


if __name__ == "__main__":
    os.environ["SLURM_BITSTR_LEN"] = "0"  # list all tasks of an array, not only the first 64 characters
    serve_requests(make_call_handler, to_backend_error)
