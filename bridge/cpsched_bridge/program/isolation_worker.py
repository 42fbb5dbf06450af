"""Run a dispatcher in its own process.

    python -m cpsched_bridge.program.isolation_worker FD PARENT_PID

`cpsched_bridge.cycle.isolated_dispatcher` starts the process and explains its purpose. The process compiles kernels,
answers requests, and ends with the bridge.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable

from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import CHECKED_METHODS, describe_exception, plugin_source_location
from cpsched.model import Cluster, IntArray, Job, JobTable, Snapshot
from cpsched.model.job_table import PlacementPool, read_only_view
from cpsched.registry import DISPATCHERS
from cpsched_bridge.child_server import serve_requests
from cpsched_bridge.cycle.isolated_dispatcher import (
    DecideRequest,
    DecideResponse,
    EndedJobsMessage,
    WorkerInit,
)
from cpsched_sim import kernel_warm_up
from cpsched_sim.file_io import read_setting_file


def to_writable(array: IntArray) -> IntArray:
    """Return a writable array for kernels.

    Since Python 3.14, pickling preserves the read-only flag.
    """
    return array if array.flags.writeable else array.copy()


class SnapshotAssembler:
    """An assembler of snapshots from requests.

    It stores the jobs and the cluster of earlier requests.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._cluster: Cluster | None = None

    def assemble(self, question: DecideRequest) -> Snapshot:
        """Return a request's snapshot.

        The bridge has already checked its slots and columns.
        """
        if question.cluster is not None:
            self._cluster = question.cluster
        assert self._cluster is not None
        known = self._jobs | {job.id: job for job in question.jobs}
        jobs = [known[id] for id in question.ids.tolist()]
        self._jobs = {job.id: job for job in jobs}
        node, units = map(to_writable, question.places)
        columns = {name: to_writable(column) for name, column in question.columns.items()}
        table = JobTable(jobs=jobs, places=PlacementPool(len(node), node, units), **columns)
        return Snapshot(
            question.now_s,
            self._cluster,
            read_only_view(question.free),
            table.read_only(),
            question.queue,
            question.running,
            True,
        )


def handle_message(
    dispatcher: Dispatcher, rounds: SnapshotAssembler, message: DecideRequest | EndedJobsMessage
) -> DecideResponse:
    """Return the response to a message. An exception from the dispatcher becomes text."""
    question = message if isinstance(message, DecideRequest) else None
    snapshot = None if question is None else rounds.assemble(question)
    try:
        _train_on_ended_jobs(dispatcher, message if isinstance(message, EndedJobsMessage) else message.known)
        decision = None
        if snapshot is not None and question is not None:
            began_s = time.perf_counter()
            decision = dispatcher.decide(snapshot, question.need)
            took = getattr(dispatcher, "took", None)
            if took is not None:
                took(time.perf_counter() - began_s)
        tell = getattr(dispatcher, "memory", None)
        return DecideResponse(decision, bool(dispatcher.learns), None if tell is None else tell())
    except Exception as error:
        place = plugin_source_location(error, dispatcher, CHECKED_METHODS["dispatcher"])
        return DecideResponse(failure=describe_exception(error) + (f" ({place})" if place else ""))


def _train_on_ended_jobs(dispatcher: Dispatcher, known: EndedJobsMessage) -> None:
    if known.memory is not None:
        dispatcher.recall(known.memory)
    for ended in known.ended_jobs:
        dispatcher.learn(ended)


def make_message_handler(
    init: WorkerInit, report: Callable[[str], None]
) -> Callable[[DecideRequest | EndedJobsMessage], DecideResponse]:
    """Return the function that answers messages, after compiling all kernels for the dispatcher and the bridge."""
    spec = init.spec
    dispatcher = DISPATCHERS.build(spec.dispatcher, spec.dispatcher_settings, read_setting_file)
    for module in init.modules:
        with contextlib.suppress(ImportError):  # the bridge then compiles these kernels itself
            importlib.import_module(module)
    kernel_warm_up.load_registered_kernels(report)
    rounds = SnapshotAssembler()
    return lambda message: handle_message(dispatcher, rounds, message)


def answer_unsendable_decision(error: Exception) -> DecideResponse:
    """Return the response to a message whose decision cannot be pickled."""
    return DecideResponse(failure=f"the decision cannot be sent: {describe_exception(error)}")


if __name__ == "__main__":
    serve_requests(make_message_handler, answer_unsendable_decision)
