"""The script that runs the live tests, with stand-ins for Docker and pytest: clusters, tests, what is left."""

import re

import pytest

from tests.slurm.conftest import why_not
from tests.slurm.harness import project_of
from tests.unit.deploy.test_cluster import Host

DOCKER = """
printf '%s %s: %s\\n' "$CPSCHED_PROJECT" "$CPSCHED_NET" "$*" >>$here/calls
case "$*" in
*sinfo*) printf 'idle\\nidle\\nidle\\nidle\\n' ;;
*is-system-running*) echo running ;;
"--project-name mine "*" down "*) [ ! -e $here/stuck ] || exit 1 ;;
"ps "*) echo c0ffee ;;
esac
"""
PYTEST = """printf 'pytest of %s: %s\\n' "$CPSCHED_CLUSTERS" "$*" >>$here/calls; exit ${FAILS:-0}"""


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    for name in ("docker", "docker-compose"):
        host.put(name, DOCKER)
    host.put("python3", "exit 0")
    host.put("pytest", PYTEST)
    return host


def run(host, *words, **environment):
    done = host.run("test-slurm", *words, PYTEST=str(host.folder / "pytest"), **environment)
    return done, host.calls()


def clusters_of(calls, command):
    """(name, network) of each cluster for which a compose command ran, in order."""
    found = [re.match(r"(\S+) (\S+): .*--project-name \1 .* " + command, call) for call in calls]
    return [match.groups() for match in found if match]


MINE = {"CPSCHED_PROJECT": "mine", "CPSCHED_NET": "172.30.91"}
TWO = [("mine", "172.30.91"), ("mine-2", "172.30.92")]


@pytest.mark.parametrize("fails", ["0", "2"])
def test_two_clusters_run_the_tests_side_by_side_and_both_are_gone_afterwards(host, fails):
    done, calls = run(host, CLUSTERS="2", WIDE_NODES="0", FAILS=fails, **MINE)
    assert done.returncode == int(fails), done.stderr
    assert clusters_of(calls, r"up --detach mariadb .*n4$") == TWO
    assert clusters_of(calls, r"up .* systemd$") == TWO
    assert clusters_of(calls, r"up --detach --no-deps n1 n2$") == TWO
    (tests,) = (call for call in calls if call.startswith("pytest"))
    assert tests.startswith("pytest of 2: ")
    assert tests.endswith("--durations=10 --numprocesses 2 --dist worksteal tests/slurm")
    after = calls[calls.index(tests) :]
    assert clusters_of(after, r"down --volumes") == TWO


def test_a_cluster_that_cannot_be_taken_down_keeps_no_other_one_up(host):
    (host.folder / "stuck").touch()
    done, calls = run(host, CLUSTERS="2", WIDE_NODES="0", **MINE)
    assert done.returncode == 1
    assert ", down " in done.stdout
    assert clusters_of(calls[-2:], r"down --volumes") == TWO[1:]


def test_chosen_tests_run_on_one_cluster(host):
    done, calls = run(host, "tests/slurm/test_systemd.py", CLUSTERS="1", **MINE)
    assert done.returncode == 0, done.stderr
    assert clusters_of(calls, r"up --detach mariadb .*n4$") == TWO[:1]
    (tests,) = (call for call in calls if call.startswith("pytest"))
    assert tests.startswith("pytest of 1: ")
    assert tests.endswith(" --durations=10 tests/slurm/test_systemd.py"), "and nothing but these"
    assert "tests/slurm " not in tests


def test_an_older_release_runs_on_a_cluster_of_its_own_and_without_a_systemd_where_so_told(host):
    done, calls = run(host, "-m", "conformance", "tests/slurm", SLURM="22.05", SYSTEMD="0")
    assert done.returncode == 0, done.stderr
    assert clusters_of(calls, r"up --detach mariadb .*n4$") == [("cpsched-2205", "172.30.57")]
    assert not clusters_of(calls, "up .* systemd$")
    built = [call for call in calls if ": build --tag " in call]
    assert all("--tag cpsched/" in call and ":22.05 " in call for call in built)
    assert any("SUITE=bookworm --build-arg SLURM=22.05" in call for call in built)
    assert any(call.endswith("--durations=10 -m conformance tests/slurm") for call in calls)


def test_a_release_that_is_not_there_is_refused(host):
    done = host.run("cluster", "up", SLURM="20.11")
    assert (done.returncode, done.stderr) == (1, "cluster: SLURM=20.11: must be one of 22.05, 24.11, 26.05\n")


def test_each_worker_has_a_cluster_of_its_own_named_as_the_script_names_it():
    named = {"CPSCHED_PROJECT": "mine"}
    assert project_of({}) == "cpsched"
    assert project_of(named) == project_of({**named, "PYTEST_XDIST_WORKER": "gw0"}) == "mine"
    assert project_of({**named, "PYTEST_XDIST_WORKER": "gw1"}) == "mine-2"


@pytest.mark.parametrize(
    ("workers", "said"), [("2", "no docker command here"), ("3", "tests of one cluster do not run in parallel")]
)
def test_tests_run_in_parallel_only_where_there_are_clusters_enough(monkeypatch, workers, said):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setenv("CPSCHED_CLUSTERS", "2")
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", workers)
    assert said in str(why_not())
