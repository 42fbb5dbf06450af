"""The garbage collector is paused only while jobs are read."""

import gc

import pytest

from cpsched.gc_pause import gc_paused
from cpsched_sim.whatif import whatif_io


def test_disables_collector_within_block_and_restores_it():
    seen = []

    def fail():
        with gc_paused():
            seen.append(gc.isenabled())
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert (seen, gc.isenabled()) == ([False], True)


def test_keeps_collector_disabled_if_it_was():
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_trace_reading_pauses_collector(monkeypatch, tmp_path):
    def read_history(*_):
        raise ValueError(f"collector is on: {gc.isenabled()}")

    monkeypatch.setattr(whatif_io, "read_history", read_history)
    with pytest.raises(ValueError, match="collector is on: False"):
        whatif_io.read_whatif_window(whatif_io.WhatIfInputs(source=tmp_path / "jobs.txt"))
