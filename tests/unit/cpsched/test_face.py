"""The names that `import cpsched` and `import cpsched_sim` provide, and the cost of the imports."""

import pkgutil
import subprocess
import sys
from importlib.metadata import version

import pytest

import cpsched
import cpsched_sim

CORE = [
    "Cluster", "ClusterState", "CpschedError", "Decision", "Dispatcher", "Effort", "EndedJob", "InvalidValue",
    "Job", "Metric", "NEVER", "Placement", "plan", "PluginError", "PluginLoadError", "Policy", "PolicySpec",
    "Predictor", "Registration", "Request", "RunningJob", "ScheduleData", "Snapshot", "Starts", "UnknownName",
    "verify", "Violation", "Wait",
]  # fmt: skip
SIMULATOR = [
    "Chart", "compare", "Comparison", "draw_account_shares", "draw_bars", "draw_distributions",
    "draw_utilization", "from_frame", "load", "METRICS", "recorded_schedule_of", "run_study", "Schedule", "simulate",
    "Simulation", "StudyResults", "TraceDialect", "TraceJob", "Workload",
]  # fmt: skip


@pytest.mark.parametrize(("package", "names"), [(cpsched, CORE), (cpsched_sim, SIMULATOR)])
def test_exports_documented_names(package, names):
    """A name that is added or taken away is a promise to researchers that changes: here is where it is decided."""
    assert sorted(package.__all__) == sorted(names)
    assert all(getattr(package, name) is not None for name in names)
    assert {name for name in dir(package) if not name.startswith("__")} == set(names)


@pytest.mark.parametrize("package", [cpsched, cpsched_sim])
def test_no_exported_name_is_module(package):
    """Importing the module, from wherever, would put it in place of what the face offers."""
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert modules.isdisjoint(package.__all__)


def test_unknown_name_is_attribute_error():
    with pytest.raises(AttributeError, match="module 'cpsched' has no attribute 'Snapshoot'"):
        cpsched.Snapshoot  # noqa: B018


@pytest.mark.parametrize("package", ["cpsched", "cpsched_sim"])
def test_import_loads_nothing_heavy(package):
    heavy = {"numpy", "numba", "ortools", "pandas", "pydantic", "rich", "typer", "hypothesis", "pytest"}
    code = f"import sys, {package}; sys.exit(' '.join({heavy} & sys.modules.keys()) or 0)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_package_has_version():
    assert cpsched.__version__ == version("cpsched")
