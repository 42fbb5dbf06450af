"""Set up live tests, which require the cluster of `deploy/cluster up` and are skipped without it.

`make test-slurm` starts the cluster, runs this folder and stops the cluster. To run tests by hand, use
`deploy/cluster up`, then `pytest tests/slurm`. The fixture `slurm` is a `harness.Slurm` that is reset before each test.
The fixture `cluster` is the same object without a reset.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.harness import TRANSPORT, CommandFailed, Slurm
from tests.slurm.report import report, write


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/slurm/" in str(item.path):
            item.add_marker(pytest.mark.slurm)


BEGAN_S = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the results of the run to the file CPSCHED_REPORT, if set."""
    if path := os.environ.get("CPSCHED_REPORT"):
        version = Slurm().run("scontrol", "--version")
        write(Path(path), report(version, TRANSPORT, time.monotonic() - BEGAN_S, terminalreporter.stats))


def why_not() -> str | None:
    """Return why no test cluster is available, or None."""
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > int(os.environ.get("CPSCHED_CLUSTERS", "1")):
        return "tests of one cluster do not run in parallel: make test-slurm"
    if shutil.which("docker") is None:
        return "no docker command here"
    try:
        subprocess.run(["docker", "info"], capture_output=True, check=True, timeout=30)
        Slurm().container("slurmctld")
    except subprocess.SubprocessError:
        return "no Docker engine answers"
    except CommandFailed:
        return "the test cluster is not up: deploy/cluster up"
    return None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Slurm]:
    reason = why_not()
    if reason is not None:
        # make test-slurm has just started the cluster, so a missing cluster is a failure
        if os.environ.get("CPSCHED_SLURM_CLUSTER"):
            pytest.fail(reason)
        pytest.skip(f"live Slurm tests: {reason}")
    live = Slurm()
    # A bridge or dead-man timer left running on the cluster would disturb every test.
    for service in ("bridge", "deadman"):
        with contextlib.suppress(CommandFailed):  # usually, it does not run
            live.stop(service)
    yield live
    live.close()


@pytest.fixture
def slurm(cluster: Slurm) -> Slurm:
    cluster.reset()
    return cluster
