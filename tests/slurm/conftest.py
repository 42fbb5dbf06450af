"""Set up live tests, which require the cluster of `deploy/cluster up` and are skipped without it.

`make test-slurm` starts the cluster, runs this folder and stops the cluster. To run tests by hand, use
`deploy/cluster up`, then `pytest tests/slurm`. The fixture `slurm` is a `harness.Slurm` that is reset before each test.
The fixture `cluster` is the same object without a reset.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.harness import TRANSPORT, CommandFailed, Slurm


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/slurm/" in str(item.path):
            item.add_marker(pytest.mark.slurm)


BEGAN_S = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the results to the file CPSCHED_REPORT, if set, for the table in docs/supported-settings.md."""
    path = os.environ.get("CPSCHED_REPORT")
    if not path:
        return
    outcomes = terminalreporter.stats
    content = {
        "slurm": Slurm().run("scontrol", "--version").split()[-1],
        "transport": TRANSPORT,
        "passed": len(outcomes.get("passed", ())),
        "failed": sorted({each.nodeid for kind in ("failed", "error") for each in outcomes.get(kind, ())}),
        "skipped": sorted(each.nodeid for each in outcomes.get("skipped", ())),
        "seconds": round(time.monotonic() - BEGAN_S),
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(content, indent=1) + "\n")


def why_not() -> str | None:
    """Return why no test cluster is available, or None."""
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > int(os.environ.get("CPSCHED_CLUSTERS", "1")):
        return "tests of one cluster do not run in parallel: make test-slurm"
    try:
        Slurm().container("slurmctld")
    except (OSError, subprocess.SubprocessError, CommandFailed) as error:
        return f"the test cluster is not up (deploy/cluster up): {error}"
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


@pytest.fixture
def plugin_on(slurm: Slurm) -> None:
    """Switch the submit plugin on, for the tests of modules that use this fixture."""
    slurm.plugin(on=True)
