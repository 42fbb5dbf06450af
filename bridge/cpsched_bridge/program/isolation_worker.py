"""Run a dispatcher in its own process.

    python -m cpsched_bridge.program.isolation_worker FD PARENT_PID

`cpsched_bridge.cycle.isolated_dispatcher` starts the process and explains its purpose. The process compiles kernels,
answers requests, and ends with the bridge.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import CHECKED_METHODS, describe_exception
from cpsched.model import Cluster, IntArray, Job, JobTable, Snapshot
from cpsched.model.job_table import PlacementPool, read_only_view
from cpsched.plugin_error_location import plugin_source_location
from cpsched.registry import DISPATCHERS
from cpsched_bridge.cycle.isolated_dispatcher import (
    DecideRequest,
    DecideResponse,
    EndedJobsMessage,
    WorkerInit,
    WorkerStartupProgress,
)
from cpsched_bridge.socket_child_process import prepare_child_process
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
            names, resources, capacity, sets, set_names, epoch_s, weights, leaves = question.cluster
            self._cluster = Cluster(
                names, resources, capacity, sets, set_names, epoch_s=epoch_s, weights=weights, leaf_switches=leaves
            )
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


def make_compiled_dispatcher(begins: WorkerInit, channel: Connection[Any, Any]) -> Dispatcher:
    """Return the dispatcher after compiling all kernels for it and the bridge.

    Report the progress to `channel`.
    """
    spec = begins.spec
    dispatcher = DISPATCHERS.build(spec.dispatcher, spec.dispatcher_settings, read_setting_file)
    for module in begins.modules:
        with contextlib.suppress(ImportError):  # the bridge then compiles these kernels itself
            importlib.import_module(module)
    kernel_warm_up.load_registered_kernels(lambda words: channel.send(WorkerStartupProgress(words)))
    channel.send(WorkerStartupProgress())
    return dispatcher


def serve_dispatcher_requests(channel: Connection[Any, Any]) -> None:
    """Start the dispatcher, then answer messages until the connection closes."""
    begins = channel.recv()
    dispatcher = make_compiled_dispatcher(begins, channel)
    rounds = SnapshotAssembler()
    while True:
        try:
            question = channel.recv()
        except EOFError:
            return
        reply = handle_message(dispatcher, rounds, question)
        try:
            channel.send(reply)
        except BrokenPipeError:
            return
        except Exception as error:  # the decision cannot be serialized
            channel.send(DecideResponse(failure=f"the decision cannot be sent: {describe_exception(error)}"))


def main() -> None:
    """Run the worker process."""
    prepare_child_process(int(sys.argv[2]))
    with contextlib.suppress(BrokenPipeError):  # the bridge has ended
        serve_dispatcher_requests(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
