"""Requests to the pyslurm child, run in this process: its side of the protocol without a socket."""

from __future__ import annotations

import os
import runpy
import socket
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from cpsched_bridge import socket_child_process
from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_worker, wire_protocol
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import ERRORS

CALLS = {"version", "jobs", "job", "nodes", "modify"}


def raising(error: Exception) -> dict[str, Any]:
    """The answer to a call that raises."""

    def call() -> None:
        raise error

    return pyslurm_worker.handle_request(lambda: {"call": call}, {"call": "call", "arguments": {}})


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (RuntimeError("Socket timed out on send/recv operation"), "timeout", "Socket timed out on send/recv operation"),
        (RuntimeError("TIMED OUT"), "timeout", "TIMED OUT"),
        (RuntimeError("Unable to contact slurm controller (connect failure)"), "unavailable", "Unable to contact"),
        (RuntimeError("Access/permission denied"), "refused", "Access/permission denied"),
        (KeyError(), "refused", "KeyError"),
        (ImportError("no such library"), "refused", "pyslurm cannot be imported: no such library"),
        (ModuleNotFoundError("No module named 'pyslurm'"), "refused", "pyslurm cannot be imported: No module named"),
    ],
)
def test_maps_exception_to_error_kind_with_detail(error: Exception, kind: str, words: str) -> None:
    found = raising(error)
    assert set(found) == {"error", "detail"}
    assert found["error"] == kind
    assert found["detail"].startswith(words)
    assert kind in ERRORS


def test_call_gets_arguments_and_returns_result() -> None:
    known = {"past": lambda since: [since, "x"], "hello": lambda: None}
    assert pyslurm_worker.handle_request(lambda: known, {"call": "past", "arguments": {"since": 5}}) == {
        "result": [5, "x"]
    }
    assert pyslurm_worker.handle_request(lambda: known, {"call": "hello", "arguments": {}}) == {"result": None}
    for request in ({"call": "other", "arguments": {}}, {"call": "hello", "arguments": {"more": 1}}):
        found = pyslurm_worker.handle_request(lambda: known, request)
        assert found["error"] == "refused"
        assert found["detail"]


@pytest.fixture
def pyslurm(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which a module that knows nothing can be imported as pyslurm."""
    module = ModuleType("no_pyslurm")
    module.__dict__["__version__"] = "0"
    monkeypatch.setitem(sys.modules, "no_pyslurm", module)
    return "no_pyslurm"


def test_finds_calls_by_name(pyslurm: str) -> None:
    assert set(pyslurm_worker.load_pyslurm_calls(pyslurm)) == CALLS


def test_serves_requests_in_turn_and_imports_pyslurm_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the first call, and says so: no answer is late because of it."""
    imported: list[str] = []

    def calls(module: str) -> dict[str, Any]:
        imported.append(module)
        return {"hello": lambda: module}

    monkeypatch.setattr(pyslurm_worker, "load_pyslurm_calls", calls)
    ours, theirs = socket.socketpair()
    ours.settimeout(10.0)
    served = threading.Thread(target=pyslurm_worker.serve, args=(theirs, "some_pyslurm"), daemon=True)
    served.start()
    assert wire_protocol.receive_frame(ours) == wire_protocol.READY_FRAME
    assert imported == ["some_pyslurm"]
    for _ in range(3):
        wire_protocol.send_frame(ours, {"call": "hello", "arguments": {}})
        assert wire_protocol.receive_frame(ours) == {"result": "some_pyslurm"}
    assert imported == ["some_pyslurm"]
    ours.close()
    served.join(10.0)
    assert not served.is_alive(), "it ends when the other side has gone"
    theirs.close()


def test_reports_import_failure_with_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(module: str) -> dict[str, Any]:
        raise ImportError("no library")

    monkeypatch.setattr(pyslurm_worker, "load_pyslurm_calls", calls)
    ours, theirs = socket.socketpair()
    for _ in range(2):
        wire_protocol.send_frame(ours, {"call": "hello", "arguments": {}})
    ours.shutdown(socket.SHUT_WR)
    pyslurm_worker.serve(theirs, "pyslurm")
    assert wire_protocol.receive_frame(ours) == wire_protocol.READY_FRAME
    refused = {"error": "refused", "detail": "pyslurm cannot be imported: no library"}
    assert [wire_protocol.receive_frame(ours) for _ in range(2)] == [refused, refused]
    ours.close()
    theirs.close()


def test_child_exits_if_parent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge has gone while the child was at work: the answer cannot be sent."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(
        pyslurm_worker, "load_pyslurm_calls", lambda module: {"hello": lambda: ours.close() or "x" * 10_000_000}
    )
    wire_protocol.send_frame(ours, {"call": "hello", "arguments": {}})
    pyslurm_worker.serve(theirs, "pyslurm")
    theirs.close()


@pytest.mark.parametrize(
    ("more", "module"), [([], "pyslurm"), (["other_pyslurm"], "other_pyslurm"), (["one", "two"], "one")]
)
def test_child_prepares_environment_and_serves_given_socket(
    monkeypatch: pytest.MonkeyPatch, more: list[str], module: str
) -> None:
    done: list[Any] = []
    ours, theirs = socket.socketpair()
    fd = theirs.detach()
    monkeypatch.setattr(pyslurm_worker, "prepare_child_process", lambda parent: done.append(("begin", parent)))
    monkeypatch.setattr(
        pyslurm_worker, "serve", lambda channel, name: done.append((channel.fileno(), name, channel.close()))
    )
    monkeypatch.setenv("SLURM_BITSTR_LEN", "64")
    pyslurm_worker.main([str(fd), "1234", *more])
    assert done == [("begin", 1234), (fd, module, None)]
    assert os.environ["SLURM_BITSTR_LEN"] == "0", "so that the tasks of an array are listed in full"
    ours.close()


def test_child_program_takes_arguments_from_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []
    ours, theirs = socket.socketpair()
    wire_protocol.send_frame(ours, {"call": "hello", "arguments": {}})
    ours.shutdown(socket.SHUT_WR)
    monkeypatch.setattr(socket_child_process, "prepare_child_process", begun.append)
    monkeypatch.setattr(sys, "argv", ["child.py", str(theirs.detach()), "1234", "no_such_pyslurm"])
    monkeypatch.delitem(sys.modules, pyslurm_worker.__name__)
    runpy.run_module(pyslurm_worker.__name__, run_name="__main__")
    assert begun == [1234]
    assert wire_protocol.receive_frame(ours) == wire_protocol.READY_FRAME
    assert "no_such_pyslurm" in wire_protocol.receive_frame(ours)["detail"]
    ours.close()
