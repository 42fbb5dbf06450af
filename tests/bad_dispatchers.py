"""Misbehaving dispatchers. Tests refer to them by name if another process builds the dispatcher."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

from cpsched.dispatchers.base import Dispatcher
from tests.fakes import FirstFit


class HangsInC(Dispatcher):
    """Sleeps in a foreign function that holds the interpreter's lock, like a compiled kernel or a solver."""

    def decide(self, snapshot, need="plan"):
        ctypes.PyDLL(None).sleep(600)


class Moody(Dispatcher):
    """Behaves differently each second."""

    def decide(self, snapshot, need="plan"):
        if snapshot.now_s == 0:
            raise RuntimeError("no idea")
        if snapshot.now_s == 1:
            return lambda: None
        if snapshot.now_s == 2:
            os._exit(7)
        sys.exit(3)


class Counts(FirstFit):
    """Learns the number of ended jobs and reports it."""

    learns = True

    def __init__(self):
        self.count = 0

    def learn(self, ended):
        self.count += 1

    def memory(self):
        return {"count": self.count}

    def recall(self, memory):
        self.count = memory["count"]


class Gated(FirstFit):
    """Waits for the file CPSCHED_TEST_GATE; ends at once if the file says so."""

    def __init__(self):
        gate = Path(os.environ["CPSCHED_TEST_GATE"])
        while not gate.exists():
            time.sleep(0.02)
        if gate.read_text() == "die":
            os._exit(9)
