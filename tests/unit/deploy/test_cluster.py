"""The scripts that bring up the test cluster, with stand-ins for the programs that they call."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def host(tmp_path):
    """A host whose docker, apt-get and the like are the test's own."""
    return Host(tmp_path)


class Host:
    def __init__(self, folder):
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.put("sleep", "exit 0")

    def put(self, name, script):
        file = self.folder / name
        file.write_text(f"#!/bin/bash\nhere={self.folder}\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def run(self, script, *words, **environment):
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [ROOT / "deploy" / script, *words], capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": path, **environment},
        )  # fmt: skip


DOCKER = """
case $1 in
ps) echo c0ffee ;;
exec) printf '%s\\n' "$*" >>$here/calls ;;
esac
"""


@pytest.mark.parametrize(
    ("user", "home"), [("root", "/"), ("alice", "/home/alice"), ("bob", "/home/bob"), ("cpsched", "/tmp")]
)
def test_a_command_runs_as_each_of_the_users_where_that_user_may_be(host, user, home):
    host.put("docker", DOCKER)
    done = host.run("cluster", "as", user, "squeue", "--all")
    assert done.returncode == 0, done.stderr
    assert host.calls() == [f"exec -i --user {user} --workdir {home} c0ffee squeue --all"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cpsched", "cpsched", "status"], "no cpsched program: deploy/cluster as-bridge cpsched status"),
        (["carol", "id"], "as carol: must be alice, bob, cpsched or root"),
        (["alice"], "as USER COMMAND...: USER is"),
        ([], "as USER COMMAND...: USER is"),
    ],
)
def test_what_cannot_be_run_there_is_said(host, words, said):
    host.put("docker", DOCKER)
    done = host.run("cluster", "as", *words)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr


BRIDGE = """
printf '%s\\n' "$*" >>$here/calls
case "$*" in
*' cat beginning') { read -r line; cat >$here/rest; } <$here/beginning; mv $here/rest $here/beginning
    [ -n "$line" ] && echo "$line" || exit 1 ;;
*'stat --format'*) { read -r line; cat >$here/rest; } <$here/beats; mv $here/rest $here/beats
    echo "$line"
    case $line in OCI*) exit 126 ;; esac ;;
*inspect*) echo WIDE_NODES=0 ;;
ps*) echo c0ffee ;;
esac
"""


def test_the_bridge_is_waited_for_while_it_says_how_far_it_is_and_whatever_the_engine_prints(host):
    """An engine prints on standard output why a command cannot be run in a container that is ending."""
    host.put("docker", BRIDGE)
    host.put("docker-compose", "exit 0")
    host.put("python3", "exit 0")
    (host.folder / "beginning").write_text("starts\n" * 14 + "compiles 1 of 2\n" * 5 + "compiles 2 of 2\n" * 3)
    (host.folder / "beats").write_text(
        "OCI runtime exec failed\nan engine that calls this a success\n\n0\n99999999999\n"
    )
    done = host.run("cluster", "bridge", CPSCHED_LOOKS="12")
    assert "integer" not in done.stderr
    assert done.returncode == 1, "the first words stood still for too long"
    assert "no heartbeat of the bridge" in done.stderr
    (host.folder / "beginning").write_text("starts\n" * 9 + "compiles 1 of 2\n" * 9 + "compiles 2 of 2\n" * 3)
    done = host.run("cluster", "bridge", CPSCHED_LOOKS="12")
    assert done.returncode == 0, done.stderr
    assert "integer" not in done.stderr
    said = [line for line in done.stderr.splitlines() if "image" not in line]
    assert said[:3] == ["cluster: starts", "cluster: compiles 1 of 2", "cluster: compiles 2 of 2"]
    assert said[3].startswith("cluster: the bridge is ready: ")


def test_another_apt_is_waited_for_and_that_is_said_once(host):
    host.put("docker", "case $1 in import) cat >/dev/null ;; *) exit 1 ;; esac")
    host.put("id", "echo 0")
    host.put("tar", "exit 0")
    host.put("debootstrap-made-by-the-test", 'root=$4; mkdir -p "$root/etc/apt/apt.conf.d"')
    host.put(
        "apt-get",
        """
printf '%s\\n' "$*" >>$here/calls
tries=$(grep -c "^$1 " $here/calls)
[ "$1" = indextargets ] && exit 0
[ "$tries" -le 3 ] && { echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7"; exit 100; }
[ "$1" = install ] && mv $here/debootstrap-made-by-the-test $here/debootstrap
exit 0
""",
    )
    bare = Bare(host)
    done = bare.run()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("another apt is at work on this host") == 2, "once for each of the two steps"
    assert [call.split()[0] for call in host.calls() if call.split()[0] != "indextargets"] == ["update"] * 4 + [
        "install"
    ] * 4


def test_an_apt_that_fails_otherwise_is_no_reason_to_wait(host):
    host.put("docker", "exit 1")
    host.put("id", "echo 0")
    host.put("apt-get", 'printf "%s\\n" "$*" >>$here/calls; echo "E: no network"; exit 100')
    done = Bare(host).run()
    assert done.returncode != 0
    assert "E: no network" in done.stderr
    assert len(host.calls()) == 1


class Bare:
    """A host without debootstrap: of the real programs only those are there that the script needs."""

    NEEDED = ("bash", "env", "timeout", "grep", "head", "seq", "mktemp", "rm", "mkdir", "dirname", "cat", "mv", "tail")

    def __init__(self, host):
        self.host = host
        for name in self.NEEDED:
            found = next(Path(folder) / name for folder in ("/usr/bin", "/bin") if (Path(folder) / name).exists())
            (host.folder / name).symlink_to(found)

    def run(self):
        return subprocess.run(
            [ROOT / "deploy" / "slurm" / "base-image", "forky"], capture_output=True, text=True, check=False,
            env={"PATH": str(self.host.folder)},
        )  # fmt: skip
