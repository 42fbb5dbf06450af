"""Upgrade and downgrade with held jobs, between this tree and the last commit before the first release.

Each side is a whole program of its own tree, and uses its own simulated cluster. Only the state directory, the settings
and the list of held jobs pass from one to the other.
"""

import io
import json
import os
import subprocess
import sys
import tarfile

import pytest

from deploy.version import ROOT

PREVIOUS = "dae76054"
"""The release or commit from which sites upgrade."""
KILLED = """
import json, sys
from pathlib import Path
from tests.fuzz import stored

folder = Path(sys.argv[1])
cluster = stored.connect(stored.Options(file=stored.make(folder).parent / "cluster"))
holds = {id: fake.hold for id, fake in cluster.jobs.items() if fake.pending and fake.hold != "none"}
(folder / "holds").write_text(json.dumps(holds))
"""
"""Leave the state directory of a killed bridge, and write which jobs the cluster holds, and for whom."""
RELEASE = """
import json, subprocess, sys
from pathlib import Path
from cpsched_bridge.ports import Hold
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.fuzz import stored

folder = Path(sys.argv[1])
cluster = FakeCluster(cluster=a_cluster(nodes=2, cores=2), file=folder / "cluster")
for id, hold in json.loads((folder / "holds").read_text()).items():
    cluster.submit(a_job(int(id), per_unit=2), hold=Hold(hold))
cluster.close()
program = "from cpsched_bridge.program.cli import main; main()"
words = [sys.executable, "-c", program, "release-all", "--config", str(folder / "bridge.yaml")]
done = subprocess.run(words, capture_output=True, text=True)
print(json.dumps([done.returncode, done.stdout + done.stderr, stored.held(folder / "bridge.yaml")]))
"""
"""Run `cpsched release-all` with the state directory. Print exit code, text, and the jobs that are still held."""


@pytest.fixture(scope="module")
def previous(tmp_path_factory):
    """The tree of the previous release."""
    git = ["git", "-C", str(ROOT), "archive", PREVIOUS, "cpsched", "sim", "bridge", "tests"]
    done = subprocess.run(git, capture_output=True)
    if done.returncode:
        pytest.skip(f"no commit {PREVIOUS} in this clone")
    tree = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


def run(tree, script, folder):
    path = os.pathsep.join(str(tree / name) for name in ("", "sim", "bridge"))
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("upgrade", [True, False], ids=["upgrade", "downgrade"])
def test_release_all_releases_jobs_held_by_another_version(tmp_path, previous, upgrade):
    """It needs the ledger for the jobs that bear no mark of the submit plugin."""
    before, after = (previous, ROOT) if upgrade else (ROOT, previous)
    run(before, KILLED, tmp_path)
    holds = json.loads((tmp_path / "holds").read_text())
    assert set(holds.values()) == {"plugin", "admin"}

    code, words, held = json.loads(run(after, RELEASE, tmp_path))
    assert (code, held) == (0, []), words
    assert "Traceback" not in words
    assert words.startswith("the bridge no longer holds any job (before: 5 jobs in its ledger)\n")
