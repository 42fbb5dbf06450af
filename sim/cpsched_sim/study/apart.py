"""One case in a process of its own: a task on standard input, on standard output its result and its schedule.

Run as `python -m cpsched_sim.study.apart PATIENCE_S` by the workers of an engine.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

from cpsched_sim.study.running import decided

_PARENT_DIED = 1
"""PR_SET_PDEATHSIG of Linux's prctl(2)."""


def main() -> None:
    """Decide it. The process ends with the worker that started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)
    out = os.dup(1)
    os.dup2(2, 1)
    os.register_at_fork(after_in_child=lambda: os.dup2(2, out))  # what a plug-in forks cannot speak for this process
    outcome = decided(json.loads(sys.stdin.buffer.read()), float(sys.argv[1]))
    with os.fdopen(out, "wb") as file:
        file.write(json.dumps([outcome.result, outcome.made]).encode() + b"\n" + (outcome.jobs or b""))


if __name__ == "__main__":
    main()
