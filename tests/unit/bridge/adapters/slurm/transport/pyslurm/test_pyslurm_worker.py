"""Calls to the pyslurm child, run in this process: its side of the protocol without a socket."""

from __future__ import annotations

import os
import runpy
import socket
import sys
from types import ModuleType
from typing import Any

import pytest

from cpsched_bridge import child_server
from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_worker
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmCall
from cpsched_bridge.child_server import StartupStep, receive_message, send_message
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused

CALLS = {"version", "jobs", "job", "nodes", "modify"}


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (RuntimeError("Socket timed out on send/recv operation"), BackendTimeout, "Socket timed out on send/recv"),
        (RuntimeError("TIMED OUT"), BackendTimeout, "TIMED OUT"),
        (
            RuntimeError("Unable to contact slurm controller (connect failure)"),
            BackendUnavailable,
            "Unable to contact",
        ),
        (RuntimeError("Access/permission denied"), CommandRefused, "Access/permission denied"),
        (KeyError(), CommandRefused, "KeyError"),
        (ImportError("no such library"), CommandRefused, "pyslurm cannot be imported: no such library"),
        (ModuleNotFoundError("No module named 'pyslurm'"), CommandRefused, "pyslurm cannot be imported: No module"),
    ],
)
def test_maps_exception_to_backend_error(error: Exception, kind: type[BackendError], words: str) -> None:
    found = pyslurm_worker.to_backend_error(error)
    assert (type(found), str(found)[: len(words)]) == (kind, words)


def test_call_gets_arguments_and_returns_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyslurm is imported once, before the first call: no answer is late because of it."""
    imported: list[str] = []

    def calls(module: str) -> dict[str, Any]:
        imported.append(module)
        return {"past": lambda since: [since, "x"], "hello": lambda: None}

    monkeypatch.setattr(pyslurm_worker, "load_pyslurm_calls", calls)
    handle = pyslurm_worker.make_call_handler("some_pyslurm", print)
    assert imported == ["some_pyslurm"]
    assert [handle(PyslurmCall("past", {"since": 5})), handle(PyslurmCall("hello", {}))] == [[5, "x"], None]
    for call in (PyslurmCall("other", {}), PyslurmCall("hello", {"more": 1})):
        with pytest.raises((LookupError, TypeError)):
            handle(call)
    assert imported == ["some_pyslurm"]


def test_finds_calls_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "no_pyslurm", ModuleType("no_pyslurm"))
    assert set(pyslurm_worker.load_pyslurm_calls("no_pyslurm")) == CALLS


def test_child_program_serves_socket_on_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    ours, theirs = socket.socketpair()
    send_message(ours, "no_such_pyslurm")
    for _ in range(2):
        send_message(ours, PyslurmCall("hello", {}))
    ours.shutdown(socket.SHUT_WR)
    monkeypatch.setattr(child_server, "prepare_child_process", begun.append)
    monkeypatch.setattr(sys, "argv", ["child.py", str(theirs.detach()), "1234"])
    monkeypatch.setenv("SLURM_BITSTR_LEN", "64")
    monkeypatch.delitem(sys.modules, pyslurm_worker.__name__)
    runpy.run_module(pyslurm_worker.__name__, run_name="__main__")
    assert os.environ["SLURM_BITSTR_LEN"] == "0", "so that the tasks of an array are listed in full"
    step, *refused = (receive_message(ours) for _ in range(3))
    assert (begun, step) == ([1234], StartupStep())
    for each in refused:
        assert (type(each), "no_such_pyslurm" in str(each)) == (CommandRefused, True)
    ours.close()
