"""Run functions of this package: answer each line of standard input, `[MODULE, FUNCTION, ARGUMENTS]`, with
`[RESULT, ERROR]`.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from typing import Any


def answer(line: str) -> tuple[Any, str]:
    """Return the result of the function that a line names, or None and the error."""
    try:
        module, function, arguments = json.loads(line)
        return getattr(importlib.import_module(module), function)(*arguments), ""
    except Exception:
        return None, traceback.format_exc()


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)
