"""Calls into the policy, which may be anybody's plug-in: whatever it does comes back as one kind of failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog

from cpsched_bridge.cycle.deadline import within
from cpsched_bridge.cycle.failures import described, traceback_of
from cpsched_bridge.errors import DecisionTimeout, PolicyFailed

T = TypeVar("T")


def ask(limit_s: float, work: Callable[[], T], kind: str = "decision_failed") -> T:
    """The result of `work`, which calls the policy.

    Raises `PolicyFailed` of this `kind` for whatever `work` raises, and of kind `decision_timeout` if it is not done
    within `limit_s` seconds. `SystemExit` and `KeyboardInterrupt` pass: they end the program.
    """
    try:
        return within(limit_s, work)
    except (SystemExit, KeyboardInterrupt, PolicyFailed):
        raise
    except DecisionTimeout as error:
        raise PolicyFailed("decision_timeout", str(error)) from error
    except BaseException as error:  # also what is no `Exception`: asyncio.CancelledError, a plug-in's own
        structlog.get_logger("bridge").error(kind, exception=traceback_of(error))
        raise PolicyFailed(kind, described(error)) from error
