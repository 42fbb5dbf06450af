"""Run a function of this package: `python -m tests.slurm.inside MODULE FUNCTION ARGUMENTS`.

Without arguments, answer each line of standard input, `[MODULE, FUNCTION, ARGUMENTS]`, with `[RESULT, ERROR]`.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from typing import Any


def run(module: str, function: str, arguments: list[Any]) -> Any:
    """Return the result of a function."""
    return getattr(importlib.import_module(module), function)(*arguments)


def answer(line: str) -> tuple[Any, str]:
    """Return the result of the function that a line names, or None and the error."""
    try:
        return run(*json.loads(line)), ""
    except Exception:
        return None, traceback.format_exc()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        module, function, arguments = sys.argv[1:]
        print(json.dumps(run(module, function, json.loads(arguments))))
    else:
        for line in sys.stdin:
            print(json.dumps(answer(line)), flush=True)
