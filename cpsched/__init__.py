"""The decision core: values in, values out; no clock, no files, no sockets.

What a researcher needs stands here:

- to write a dispatcher or a predictor: `Dispatcher`, `Predictor`, `plan`;
- what they are given and give back: `Snapshot`, `Cluster`, `Request`, `Job`, `RunningJob`, `EndedJob`, `Decision`,
  `Starts`, `Placement`, `Wait`, `Effort`, `NEVER`;
- to put them together, and to judge what they decide: `Scene`, `Policy`, `PolicySpec`, `verify`, `Violation`;
- to offer them by name, and to judge schedules: `Listing`, `Metric`, `Measures`;
- what goes wrong: `CpschedError`, `InvalidValue`, `UnknownName`, `Unloadable`, `PluginFault`.

A name is loaded when it is first used: `import cpsched` alone imports nothing. The simulator's face is `cpsched_sim`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpsched.lazy import face

if TYPE_CHECKING:
    from cpsched.dispatchers.base import Dispatcher
    from cpsched.errors import CpschedError, InvalidValue, PluginFault, UnknownName, Unloadable
    from cpsched.fit import Violation, verify
    from cpsched.listing import Listing
    from cpsched.metrics import Measures, Metric
    from cpsched.model import (
        NEVER,
        Cluster,
        Decision,
        Effort,
        EndedJob,
        Job,
        Placement,
        Request,
        RunningJob,
        Scene,
        Snapshot,
        Starts,
        Wait,
    )
    from cpsched.planning import plan
    from cpsched.policy import Policy
    from cpsched.policy_spec import PolicySpec
    from cpsched.predictors.base import Predictor

_HOMES = {
    "dispatchers.base": ("Dispatcher",),
    "errors": ("CpschedError", "InvalidValue", "PluginFault", "UnknownName", "Unloadable"),
    "fit": ("Violation", "verify"),
    "listing": ("Listing",),
    "metrics": ("Measures", "Metric"),
    "model": (
        "NEVER", "Cluster", "Decision", "Effort", "EndedJob", "Job", "Placement", "Request", "RunningJob", "Scene",
        "Snapshot", "Starts", "Wait",
    ),
    "planning": ("plan",),
    "policy": ("Policy",),
    "policy_spec": ("PolicySpec",),
    "predictors.base": ("Predictor",),
}  # fmt: skip
"""Module -> the names that this face takes from it."""
_HOME_OF = {name: f"cpsched.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [
    "NEVER",
    "Cluster",
    "CpschedError",
    "Decision",
    "Dispatcher",
    "Effort",
    "EndedJob",
    "InvalidValue",
    "Job",
    "Listing",
    "Measures",
    "Metric",
    "Placement",
    "PluginFault",
    "Policy",
    "PolicySpec",
    "Predictor",
    "Request",
    "RunningJob",
    "Scene",
    "Snapshot",
    "Starts",
    "UnknownName",
    "Unloadable",
    "Violation",
    "Wait",
    "plan",
    "verify",
]

__getattr__, __dir__ = face(globals(), _HOME_OF)
