"""What `import cpsched` and `import cpsched_sim` give, and what they cost."""

import subprocess
import sys

import pytest

import cpsched
import cpsched_sim

CORE = [
    "Cluster", "CpschedError", "Decision", "Dispatcher", "Effort", "EndedJob", "InvalidValue", "Job", "Listing",
    "Measures", "Metric", "NEVER", "Placement", "Policy", "PolicySpec", "Predictor", "Request", "RunningJob", "Scene",
    "Snapshot", "Starts", "UnknownName", "Unloadable", "Violation", "Wait", "plan", "verify",
]  # fmt: skip
SIMULATOR = [
    "Comparison", "METRICS", "Schedule", "Simulation", "TraceJob", "Workload", "compare", "load", "simulate",
]  # fmt: skip


@pytest.mark.parametrize(("package", "names"), [(cpsched, CORE), (cpsched_sim, SIMULATOR)])
def test_the_names_of_the_face(package, names):
    """A name that is added or taken away is a promise to researchers that changes: here is where it is decided."""
    assert sorted(package.__all__) == sorted(names)
    assert all(getattr(package, name) is not None for name in names)
    assert set(names) <= set(dir(package))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'cpsched' has no attribute 'Snapshoot'"):
        cpsched.Snapshoot  # noqa: B018


@pytest.mark.parametrize("package", ["cpsched", "cpsched_sim"])
def test_importing_the_face_imports_nothing_heavy(package):
    heavy = {"numpy", "numba", "ortools", "pandas", "pydantic", "rich", "typer", "hypothesis", "pytest"}
    code = f"import sys, {package}; sys.exit(' '.join({heavy} & sys.modules.keys()) or 0)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
