"""The decision core: pure functions and values without clocks, files or sockets.

Public API:

- Base classes and list scheduling: `Dispatcher`, `Predictor`, `plan`.
- Inputs and results: `Snapshot`, `Cluster`, `Request`, `Job`, `RunningJob`, `EndedJob`, `Decision`, `Starts`,
  `Placement`, `Wait`, `Effort`, `NEVER`.
- Policies and verification: `ClusterState`, `Policy`, `PolicySpec`, `verify`, `Violation`.
- Registration and metrics: `Registration`, `Metric`, `ScheduleData`.
- Errors: `CpschedError`, `InvalidValue`, `UnknownName`, `PluginLoadError`, `PluginError`.

Names are loaded on first use, which keeps `import cpsched` fast. The simulator's API is `cpsched_sim`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpsched.package_imports import lazy_attributes

if TYPE_CHECKING:
    from cpsched.dispatchers.base import Dispatcher
    from cpsched.errors import CpschedError, InvalidValue, PluginError, PluginLoadError, UnknownName
    from cpsched.feasibility import Violation, verify
    from cpsched.metrics import Metric, ScheduleData
    from cpsched.model import (
        NEVER,
        Cluster,
        ClusterState,
        Decision,
        Effort,
        EndedJob,
        Job,
        Placement,
        Request,
        RunningJob,
        Snapshot,
        Starts,
        Wait,
    )
    from cpsched.planning import plan
    from cpsched.policy import Policy
    from cpsched.policy_spec import PolicySpec
    from cpsched.predictors.base import Predictor
    from cpsched.registration import Registration

_NAMES_BY_MODULE = {
    "dispatchers.base": ("Dispatcher",),
    "errors": ("CpschedError", "InvalidValue", "PluginError", "UnknownName", "PluginLoadError"),
    "feasibility": ("Violation", "verify"),
    "registration": ("Registration",),
    "metrics": ("ScheduleData", "Metric"),
    "model": (
        "NEVER", "Cluster", "Decision", "Effort", "EndedJob", "Job", "Placement", "Request", "RunningJob", "ClusterState",  # noqa: E501
        "Snapshot", "Starts", "Wait",
    ),
    "planning": ("plan",),
    "policy": ("Policy",),
    "policy_spec": ("PolicySpec",),
    "predictors.base": ("Predictor",),
}  # fmt: skip
"""Public names by module."""
_MODULE_BY_NAME = {name: f"cpsched.{module}" for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = [
    "NEVER",
    "Cluster",
    "ClusterState",
    "CpschedError",
    "Decision",
    "Dispatcher",
    "Effort",
    "EndedJob",
    "InvalidValue",
    "Job",
    "Metric",
    "Placement",
    "PluginError",
    "PluginLoadError",
    "Policy",
    "PolicySpec",
    "Predictor",
    "Registration",
    "Request",
    "RunningJob",
    "ScheduleData",
    "Snapshot",
    "Starts",
    "UnknownName",
    "Violation",
    "Wait",
    "plan",
    "verify",
]

__getattr__, __dir__ = lazy_attributes(globals(), _MODULE_BY_NAME)
