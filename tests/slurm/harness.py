"""Drive the test cluster of deploy/cluster from tests: submit jobs, observe them, and cause faults.

A test asks for the fixture ``slurm`` (see conftest.py) and gets a `Slurm`, reset to an empty, idle cluster::

    def test_a_job_runs(slurm):
        job = slurm.sbatch("--ntasks=2", script="sleep 1")          # as alice
        slurm.wait_until(lambda: slurm.job(job).state == "COMPLETED", timeout_s=20)
        assert slurm.sacct([job])[job].nodes == ("n1",)

Each command runs by ``docker exec`` in the cluster's containers, which takes about 0.1 s. This module does not import
pyslurm: `Slurm.python` runs code that needs it in the bridge's image.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import TypeVarTuple, Unpack

from cpsched.slurm_text.hostlist import expand_hostlist

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
REPOSITORY = Path(__file__).resolve().parents[2]


def release_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the cluster's Slurm release: `slurm`, and the entry of deploy/slurm/releases."""
    number = environment.get("SLURM", "26.05")
    text = (REPOSITORY / "deploy/slurm/releases" / number / "release").read_text()
    said = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {"slurm": number, **said}


def project_of(environment: Mapping[str, str]) -> str:
    """Return the cluster of this process; each parallel test worker has its own cluster (deploy/test-slurm)."""
    first = environment.get("CPSCHED_PROJECT") or release_of(environment)["project"]
    number = int(environment.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return f"{first}-{number + 1}" if number else first


PROJECT = project_of(os.environ)
RELEASE = release_of(os.environ)
TAG = os.environ.get("CPSCHED_TAG") or RELEASE["slurm"]
KILLS = int(os.environ.get("CPSCHED_SIGKILLS", "10"))
"""Number of times that tests kill a bridge."""
TRANSPORT = os.environ.get("CPSCHED_TRANSPORT", "pyslurm")
"""Transport of the tests' bridges: pyslurm or cli."""
SAYS_WHY = RELEASE["slurm"] != "22.05"
"""Whether scontrol shows the submit plugin's message for a refused change."""
OLD_SACCT = RELEASE["slurm"] == "22.05"
"""Whether sacct lacks --array and Restarts."""
CALM = {"mode", "settings", "started", "transport", "cycle_gap", "interval_extended", "interval_restored"}
"""Events of a bridge without faults; a gap or a slower pace is caused by the machine."""
if TRANSPORT == "cli":
    CALM |= {"unmanaged"}  # a job whose name may imitate another job's record is unmanaged
BRIDGE_CPUS = float(os.environ.get("CPSCHED_BRIDGE_CPUS", "0"))
"""Number of CPUs for the containers of bridges, such as 0.1; 0 for no limit."""
SLOWER = max(1.0, 0.8 / BRIDGE_CPUS) if BRIDGE_CPUS else 1.0
"""Factor on the time limits of tests."""
NODES = ("n1", "n2", "n3", "n4")
GPU_NODES = ("n3", "n4")


CONF = "/etc/slurm/slurm.conf"
RENDERED = "/etc/slurm/.rendered/slurm.conf"
"""slurm.conf as it was when the cluster started."""


class CommandFailed(AssertionError):
    """An error for a command in a container that ended with a non-zero status; the message contains its output."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job as squeue lists it; a pending array is one job with the array's id. Missing texts are empty."""

    id: str
    state: str
    reason: str
    priority: int
    nodes: str
    required_nodes: str
    admin_comment: str
    comment: str
    name: str
    user: str

    @property
    def held(self) -> bool:
        return self.state == "PENDING" and self.priority == 0


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job as sacct lists it; times in Unix seconds, None if the job has not started or ended."""

    id: str
    state: str
    nodes: tuple[str, ...]
    cpus: int
    submit_s: int
    start_s: int | None
    end_s: int | None
    restarts: int
    partition: str


def docker(
    *arguments: str, check: bool = True, stdin: str | None = None, timeout_s: float = 120, with_errors: bool = False
) -> str:
    """Run one docker command; return its standard output, followed by standard error if `with_errors`.

    Bytes that are not UTF-8 are shown as ``\\xff``.
    """
    done = subprocess.run(
        ["docker", *arguments], input=stdin, capture_output=True, text=True, encoding="utf-8",
        errors="backslashreplace", timeout=timeout_s, check=False,
    )  # fmt: skip
    if check and done.returncode != 0:
        raise CommandFailed(f"docker {' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr if with_errors else done.stdout


class InsideProcess:
    """A process in a container of the bridge's image. It runs functions of `tests.slurm.inside` one after the other."""

    def __init__(self, container: str, user: str = "cpsched") -> None:
        words = ("exec", "--interactive", "--user", user, container, "python", "-m", "tests.slurm.inside")
        self._process = subprocess.Popen(["docker", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, function: Callable[[Unpack[Ts]], object], *arguments: *Ts) -> None:
        """Begin to run a function."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([function.__module__, function.__name__, arguments]) + "\n")
        self._process.stdin.flush()

    def call(self, function: Callable[[Unpack[Ts]], T], *arguments: *Ts, timeout_s: float = 120) -> T:
        """Return a function's result as a JSON value."""
        assert self._process.stdout is not None
        self.begin(function, *arguments)
        timer = threading.Timer(timeout_s, self._process.kill)
        timer.start()
        result: T
        result, error = json.loads(self._process.stdout.readline() or '[null, "the process has ended"]')
        timer.cancel()
        if error:
            raise CommandFailed(f"{function.__name__}: {error}")
        return result

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str = "", every_s: float = 0.2) -> Any:
    """Poll until `condition` returns a true value, and return it. Raise AssertionError after `timeout_s * SLOWER`."""
    timeout_s *= SLOWER
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        time.sleep(every_s)


class Slurm:
    """The running test cluster. `user` is one of alice, bob (ordinary), cpsched (operator), root (administrator)."""

    def __init__(self) -> None:
        self._python_containers: dict[str, str] = {}
        self.head = "slurmctld"
        """Service whose container runs commands that do not name a service."""
        self._containers: dict[str, str] = {}
        # Limits from an interrupted run.
        self._limited: dict[str, set[str]] = {user: {"MaxJobs=-1"} for user in ("alice", "bob")}

    # Containers

    def container(self, service: str, *, running: bool = True) -> str:
        """Return the container of a compose service: slurmctld, slurmdbd, mariadb, n1..n4, wide, bridge, deadman."""
        # Queried once: an id survives kill and start, and a command in a stopped container fails by itself.
        if service not in self._containers:
            present = self._states()
            if service not in present or (running and present[service][1] != "running"):
                raise CommandFailed(f"no container of service {service}; start the cluster with deploy/cluster up")
            self._containers[service] = present[service][0]
        return self._containers[service]

    def _states(self) -> dict[str, tuple[str, str]]:
        """Return each service's container and its state: running, paused, exited or created."""
        columns = '{{.Label "com.docker.compose.service"}} {{.ID}} {{.State}}'
        mine = f"label=com.docker.compose.project={PROJECT}"
        lines = docker("ps", "--all", "--filter", mine, "--format", columns).splitlines()
        return {service: (identity, state) for service, identity, state in map(str.split, lines)}

    def node_host(self) -> str:
        """Return a service that runs nodes, and therefore has slurm.conf even without a controller."""
        return NODES[0] if NODES[0] in self._containers or NODES[0] in self._states() else "wide"

    def run(
        self,
        *command: str,
        service: str | None = None,
        user: str = "root",
        stdin: str | None = None,
        check: bool = True,
        timeout_s: float = 120,
    ) -> str:
        """Run a command in a service's container; return its standard output."""
        service = service or self.head
        home = "/" if user == "root" else ("/tmp" if user == "cpsched" else f"/home/{user}")
        interactive = ["--interactive"] if stdin is not None else []
        return docker(
            "exec", *interactive, "--user", user, "--workdir", home, self.container(service), *command,
            stdin=stdin, check=check, timeout_s=timeout_s,
        )  # fmt: skip

    def refused(self, *command: str, user: str) -> str:
        """Run a command that must fail; return its standard error."""
        done = subprocess.run(
            ["docker", "exec", "--user", user, self.container("slurmctld"), *command],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode != 0, f"{command} as {user} was not refused: {done.stdout}"
        return done.stderr

    def kill(self, service: str) -> None:
        """Kill a container as a power failure would."""
        docker("kill", self.container(service))

    def start(self, service: str) -> None:
        """Start a killed or stopped container, and wait until the controller or the accounting answers."""
        docker("start", self.container(service, running=False))
        if service == "slurmctld":
            self.wait_for_controller()
        elif service in ("mariadb", "slurmdbd"):
            wait_until(self.accounting_answers, 90, "accounting answers", every_s=0.5)

    def stop(self, service: str) -> None:
        docker("stop", "--time", "5", self.container(service))

    def restart(self, service: str) -> None:
        self.stop(service)
        self.start(service)

    def boot(self, node: str) -> None:
        """Restart a node so that Slurm takes the restart for a boot."""
        self.run("touch", "/run/node-boots", service=node)
        self.restart(node)

    def pause(self, service: str) -> None:
        """Freeze all processes of a container (SIGSTOP, which they cannot detect); `unpause` resumes them."""
        docker("pause", self.container(service))

    def unpause(self, service: str) -> None:
        docker("unpause", self.container(service))

    def wait_for_controller(self, timeout_s: float = 60) -> None:
        wait_until(lambda: "UP" in self.run("scontrol", "ping", check=False), timeout_s, "slurmctld answers")

    # Jobs

    def sbatch(self, *options: str, script: str = "sleep 1", user: str = "alice", stdin: bool = False) -> str:
        """Submit a batch script (shell commands); return the job's id."""
        output = ["--output=/dev/null"] if not any(o.startswith(("-o", "--output")) for o in options) else []
        return self.run("sbatch", "--parsable", *output, *options, "--wrap", script, user=user).strip().split(";")[0]

    def burst(self, count: int, *options: str, script: str = "sleep 1", user: str = "alice") -> list[str]:
        """Submit `count` equal jobs from one shell, about 15 ms each; return their ids."""
        quoted = " ".join(f"'{o}'" for o in ("--parsable", "--output=/dev/null", *options))
        loop = f"for i in $(seq {count}); do sbatch {quoted} --wrap '{script}' || exit 1; done"
        return self.run("bash", "-c", loop, user=user, timeout_s=300).split()

    def squeue(self, *, states: str = "all", tasks: bool = False) -> dict[str, QueuedJob]:
        """Return all jobs known to the controller, by id (with `tasks`, an array's tasks as ``19_3``)."""
        # Names and comments may contain any text, even line breaks, so a random word ends each field.
        end = f"|{secrets.token_hex(8)}|"
        fields = ("jobarrayid", "state", "reason", "priority", "nodelist", "reqnodes", "admin_comment", "comment")
        wanted = ",".join(f"{field}:{end}" for field in (*fields, "name", "username"))
        command = ["squeue", "--noheader", f"--states={states}", "--all", f"--Format={wanted}"]
        jobs = {}
        values = self.run(*command, *(["--array"] if tasks else [])).split(end)[:-1]
        for at in range(0, len(values), len(fields) + 2):
            row = ["" if value.strip() == "(null)" else value.strip() for value in values[at : at + len(fields) + 2]]
            identity = re.sub(r"_\[.*", "", row[0])
            # squeue prints a normalized priority: 0.0 is a held job, and any other value only means "not held"
            priority = 0 if float(row[3]) == 0.0 else 1
            jobs[identity] = QueuedJob(identity, row[1], row[2], priority, *row[4:])
        return jobs

    def job(self, identity: str) -> QueuedJob:
        return self.squeue(tasks="_" in identity)[identity]

    def record(self, identity: str) -> dict[str, str]:
        """Return ``scontrol show job`` as a mapping; values end at the first space."""
        text = self.run("scontrol", "--oneliner", "show", "job", identity)
        return dict(re.findall(r"([A-Za-z][\w/:]*)=(\S*)", text.splitlines()[0]))

    def states(self, identities: Iterable[str]) -> dict[str, str]:
        """Return the state of each job or array task; purged jobs are omitted."""
        wanted = list(identities)
        present = self.squeue(tasks=any("_" in i for i in wanted))
        return {i: present[i].state for i in wanted if i in present}

    def wait_for_state(self, identities: str | Iterable[str], state: str, timeout_s: float = 30) -> None:
        wanted = [identities] if isinstance(identities, str) else list(identities)

        def others() -> list[QueuedJob | None]:
            present = self.squeue(tasks=any("_" in i for i in wanted))
            found = [present.get(i) for i in wanted]
            return [job for job in found if job is None or job.state != state]

        try:
            wait_until(lambda: not others(), timeout_s, f"all of {len(wanted)} jobs {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}; not so: {others()[:5]}") from None

    def sacct(self, identities: Iterable[str] | None = None) -> dict[str, EndedJob]:
        """Return the accounting database's jobs by id, array tasks as ``19_3``, without steps.

        Slurm 22.05 does not report the number of restarts, which is one less than the number of the job's records.
        """
        fields = "JobID,State,NodeList,AllocCPUS,Submit,Start,End,Partition"
        command = ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2"]
        command += [f"--format={fields}", "--duplicates"] if OLD_SACCT else [f"--format={fields},Restarts", "--array"]
        command += ["--jobs", ",".join(identities)] if identities is not None else ["--starttime=now-1day"]
        text = self.run("env", "SLURM_TIME_FORMAT=%s", *command)
        jobs: dict[str, EndedJob] = {}
        for line in text.splitlines():
            identity, state, nodes, cpus, submit, start, end, partition, *told = line.split("|")
            restarts = int(told[0] or 0) if told else (jobs[identity].restarts + 1 if identity in jobs else 0)
            times = [int(t) if t.isdigit() else None for t in (start, end)]
            names = expand_hostlist(nodes) if nodes != "None assigned" else ()
            jobs[identity] = EndedJob(identity, state, names, int(cpus or 0), int(submit), *times, restarts, partition)
        return jobs

    def wait_until_empty(self, timeout_s: float) -> None:
        wait_until(lambda: not self.run("squeue", "-h", "--all").strip(), timeout_s, "all jobs have ended", 1.0)

    def wait_for_accounting(self, identities: Iterable[str]) -> dict[str, EndedJob]:
        """Wait until the accounting database shows all these jobs as ended, and return them."""
        wanted = set(identities)

        def ended() -> dict[str, EndedJob] | None:
            jobs = self.sacct(wanted)
            return jobs if jobs.keys() >= wanted and all(job.end_s is not None for job in jobs.values()) else None

        found: dict[str, EndedJob] = wait_until(ended, 60, f"accounting has the ends of {len(wanted)} jobs")
        return found

    def sprio(self, field: str) -> dict[str, int]:
        """Return a field of sprio's format, such as S for the site factor, for each job that is not held, by id."""
        lines = self.run("sprio", "--noheader", f"--format=%.20i %.20{field}").splitlines()
        return {identity: int(value) for identity, value in map(str.split, lines)}

    # Control

    def scontrol(self, *arguments: str, user: str = "root") -> str:
        return self.run("scontrol", *arguments, user=user)

    def node_states(self) -> dict[str, str]:
        """Return each node's compact state as sinfo prints it, e.g. ``idle``, ``mixed``, ``drained``, ``down*``."""
        lines = self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T").splitlines()
        return dict(line.split() for line in lines)

    def drain(self, node: str, reason: str = "test") -> None:
        self.scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        self.scontrol("update", f"NodeName={node}", "State=RESUME")

    def limit(self, user: str, **limits: str) -> None:
        """Set limits of a user's association, e.g. ``limit("alice", MaxJobs="2")``; `reset` removes them."""
        words = [f"{name}={value}" for name, value in limits.items()]
        self.run("sacctmgr", "--immediate", "modify", "user", "where", f"name={user}", "set", *words)
        # Settings that remove the limits; each resource needs its own, such as GrpTRES=cpu=-1.
        off = {f"{name}={value.rpartition('=')[0]}=-1".replace("==", "=") for name, value in limits.items()}
        self._limited.setdefault(user, set()).update(off)

    def reserve(self, name: str, *words: str, start: str = "now", users: str = "root") -> None:
        """Create a reservation of 30 minutes; `reset` deletes it."""
        when = (f"StartTime={start}", "Duration=30")
        self.scontrol("create", "reservation", f"ReservationName={name}", *when, f"Users={users}", *words)

    @contextmanager
    def partition(self, name: str, state: str) -> Iterator[None]:
        """Put a partition into another state (DOWN, DRAIN, INACTIVE), and set it to UP afterwards."""
        self.scontrol("update", f"PartitionName={name}", f"State={state}")
        try:
            yield
        finally:
            self.scontrol("update", f"PartitionName={name}", "State=UP")

    @contextmanager
    def without(self, service: str) -> Iterator[None]:
        """Kill a service (mariadb, slurmdbd, a node) as a power failure would, and restart it afterwards."""
        self.kill(service)
        try:
            yield
        finally:
            self.start(service)

    def accounting_answers(self) -> bool:
        """Return whether slurmdbd and its database answer the controller's host."""
        return "lab" in self.run("timeout", "5", "sacctmgr", "--noheader", "show", "cluster", check=False)

    def plugin(self, on: bool, begin_delay_s: int | None = None) -> None:
        """Switch the job_submit plugin; `reset` switches it off.

        While it is on, new jobs arrive delayed, as at a site with the default settings. With `begin_delay_s` 0, they
        arrive held, which a test without a bridge can observe.
        """
        if not on:
            self.run("touch", "/etc/slurm/cpsched.off")
            return
        delay = "" if begin_delay_s is None else f"begin_delay_s = {begin_delay_s}, "
        edit = f"sed -i 's/{{.*bridge_uid = /{{ {delay}bridge_uid = /' /etc/slurm/cpsched.lua"
        self.run("sh", "-c", f"{edit} && touch /etc/slurm/job_submit.lua && rm -f /etc/slurm/cpsched.off")

    @contextmanager
    def configured(self, *lines: str, nodes: bool = False) -> Iterator[None]:
        """Replace the lines of slurm.conf with the same names, and restore the file afterwards.

        slurmctld is restarted: a reconfiguration sometimes fails silently (slurmscriptd is interrupted).
        `nodes` states whether the nodes restart, too.
        """
        self.run("cp", CONF, f"{CONF}.before")
        self._replace_lines(f"{CONF}.before", lines)
        self._started_anew(nodes)
        try:
            yield
        finally:
            self.run("sh", "-c", f"cat {CONF}.before > {CONF}", service=self.node_host())
            self._started_anew(nodes)

    def start_as(self, *lines: str) -> None:
        """Restart all daemons with the initial slurm.conf, in which these lines replace those with the same names.

        A line without a value, `Name=`, only removes the setting.
        """
        self._replace_lines(RENDERED, lines)
        self._started_anew(nodes=True)

    def _replace_lines(self, source: str, lines: Sequence[str]) -> None:
        names = "|".join(sorted({line.partition("=")[0] for line in lines}))
        edit = f"sed -E '/^({names})=/d' {source} > {CONF} && cat >> {CONF}"
        added = "".join(f"{line}\n" for line in lines if not line.endswith("="))
        self.run("sh", "-c", edit, service=self.node_host(), stdin=added)

    @contextmanager
    def without_node(self, node: str) -> Iterator[None]:
        """Remove a node from slurm.conf and restart slurmctld. Afterwards, wait until the node is back."""

        def rest(nodes: re.Match[str]) -> str:
            return f"Nodes={','.join(name for name in expand_hostlist(nodes[1]) if name != node)}"

        lines = self.run("cat", CONF).splitlines()
        kept = [re.sub(r"\bNodes=(n\S+)", rest, line) for line in lines if not line.startswith(f"NodeName={node} ")]
        assert len(kept) == len(lines) - 1
        self.run("sh", "-c", f"cat > {CONF}", stdin="".join(f"{line}\n" for line in kept))
        try:
            self.restart("slurmctld")
            yield
        finally:
            self.run("sh", "-c", f"cat > {CONF}", service="n1", stdin="".join(f"{line}\n" for line in lines))
            self._started_anew(nodes=True)
            wait_until(lambda: not self.node_states().get(node, "").endswith("*"), 60, f"{node} is back")

    def _started_anew(self, nodes: bool) -> None:
        self.restart("slurmctld")
        if nodes and self.node_host() == "wide":
            self.restart("wide")
            return
        for node in NODES if nodes else ():
            self.run("pkill", "-HUP", "-f", "^slurmd -D", service=node)  # other names were restarted before

    @contextmanager
    def backup_controller(self, timeout_s: int) -> Iterator[None]:
        """Run a second slurmctld on host `backup`, which takes over `timeout_s` seconds after the first one fails.

        Both have fixed addresses in slurm.conf, because the name of a stopped container cannot be resolved.
        """
        network = docker("network", "inspect", f"{PROJECT}_default", "--format", "{{(index .IPAM.Config 0).Subnet}}")
        net = network.strip().rpartition(".")[0]
        hosts = (f"SlurmctldHost=slurmctld({net}.4)", f"SlurmctldHost=backup({net}.5)")
        volumes = {
            "secrets": "/srv/secrets",
            "etc-slurm": "/etc/slurm",
            "home": "/home",
            "slurm-state": "/var/spool/slurmctld",
        }
        backup = ""
        with self.configured(*hosts, f"SlurmctldTimeout={timeout_s}", nodes=True):
            try:
                backup = docker(
                    "run", "--detach", "--init", "--label", f"cpsched.cluster={PROJECT}", "--dns=127.0.0.1",
                    "--network", f"{PROJECT}_default", f"--ip={net}.5", "--hostname=backup",
                    *(f"--volume={PROJECT}_{name}:{path}" for name, path in volumes.items()),
                    f"cpsched/slurm:{TAG}", "client", "slurmctld", "-D",
                ).strip()  # fmt: skip
                wait_until(lambda: self.controllers() == ["UP", "UP"], 30, "both controllers answer")
                yield
            finally:
                if backup:
                    for name, container in (("first", self.container("slurmctld", running=False)), ("backup", backup)):
                        log = docker("logs", "--tail=60", container, check=False, with_errors=True)
                        print(f"{name} controller, the end of its log:\n{log}")
                    docker("rm", "--force", "--volumes", backup, check=False)
                self.head = "slurmctld"

    def wait_until_saved(self, job: str) -> None:
        """Wait until slurmctld has saved the jobs, because a killed slurmctld loses unsaved state.

        Each check changes the field Extra of `job`, because slurmctld saves nothing without a change. A file saved in
        the same second as a change does not look newer than the change.
        """
        now_s = time.time()
        written = ("stat", "--format=%Y", "/var/spool/slurmctld/job_state")

        def saved() -> bool:
            self.scontrol("update", f"JobId={job}", f"Extra={time.time()}")
            return int(self.run(*written, service="slurmctld")) > now_s

        wait_until(saved, 30, "the jobs are saved", every_s=0.5)

    def controllers(self) -> list[str]:
        """Return UP or DOWN for each slurmctld, in the order of slurm.conf."""
        return re.findall(r"is (UP|DOWN)", self.run("scontrol", "ping", check=False))

    def python_container(self, host: str = "test-python") -> str:
        """Return a container of the bridge's image in the cluster's network, with the project at /src and munge.

        All kernels are compiled in it, so that no tested bridge compiles in a cycle.
        """
        found = self._python_containers.get(host)
        if found is not None and docker("ps", "-q", "--filter", f"id={found}").strip():
            return found
        volumes = {
            f"{PROJECT}_secrets": "/srv/secrets",
            f"{PROJECT}_etc-slurm": "/etc/slurm",
            f"{PROJECT}_bridge-state": "/var/lib/cpsched",
            f"cpsched-kernels-{TAG}": "/var/cache/cpsched",  # compiled kernels outlive the cluster
            REPOSITORY: "/src:ro",
        }
        settings = (
            "PYTHONPATH=/src:/src/sim:/src/bridge",
            "PYTHONPYCACHEPREFIX=/var/cache/cpsched/pyc",  # /src is read-only
            "NUMBA_CACHE_DIR=/var/cache/cpsched",
            f"CPSCHED_TRANSPORT={TRANSPORT}",
        )
        made = docker(
            "run", "--detach", "--rm", "--init", "--label", f"cpsched.cluster={PROJECT}",
            "--network", f"{PROJECT}_default", "--hostname", host, "--cap-add=NET_ADMIN", "--volume=/tmp/bridges",
            *(f"--volume={name}:{path}" for name, path in volumes.items()),
            *(f"--env={setting}" for setting in settings), f"cpsched/bridge:{TAG}", "client", "sleep", "infinity",
        ).strip()  # fmt: skip
        ready = ("exec", made, "sh", "-c", "test -e /run/cluster-ready && echo yes")
        wait_until(lambda: "yes" in docker(*ready, check=False), 30, "munge runs beside the test's python")
        self._python_containers[host] = made
        docker("exec", made, "chown", "cpsched:", "/var/lib/cpsched", "/var/cache/cpsched", "/tmp/bridges")
        warm_up = "from cpsched_bridge.program.cli import main; main()"
        docker("exec", "--user", "cpsched", made, "python", "-c", warm_up, "warm-up", timeout_s=600)
        if BRIDGE_CPUS:
            docker("update", f"--cpus={BRIDGE_CPUS}", made)
        return made

    def python(self, code: str, *arguments: str, user: str = "cpsched", timeout_s: float = 120) -> Any:
        """Run code in the bridge's image, with pyslurm and the project at /src. Return its JSON output, or None."""
        output = docker(
            "exec", "--interactive", "--user", user, self.python_container(), "python", "-", *arguments,
            stdin=code, timeout_s=timeout_s,
        )  # fmt: skip
        return json.loads(output) if output.strip() else None

    def call(
        self, function: Callable[[Unpack[Ts]], T], *arguments: *Ts, user: str = "cpsched", timeout_s: float = 120
    ) -> T:
        """Run a function of `tests.slurm.inside` in a new process, and return its result as a JSON value."""
        with closing(InsideProcess(self.python_container(), user)) as process:
            return process.call(function, *arguments, timeout_s=timeout_s)

    def reset(self) -> None:
        """Reset to an empty queue, idle nodes, no reservations, no bridge, and the plugin off."""
        # A surviving bridge, also of an interrupted run, would disturb later tests.
        for container in docker("ps", "--quiet", "--filter", f"label=cpsched.cluster={PROJECT}").split():
            docker("exec", container, "pkill", "-KILL", "-f", "cpsched_bridge", check=False)
        for service, (identity, state) in self._states().items():
            if state == "paused":
                docker("unpause", identity)
            elif state != "running" and service not in ("bridge", "deadman"):
                docker("start", identity)
        self.head = "slurmctld"
        put_back = f"cmp -s {CONF} {RENDERED} || {{ cat {RENDERED} >{CONF} && echo edited; }}"
        if self.run("sh", "-c", put_back, service=self.node_host()):
            self._started_anew(nodes=True)
        self.wait_for_controller()
        for user, names in self._limited.items():
            words = sorted(names)
            self.run("sacctmgr", "--immediate", "modify", "user", "where", f"name={user}", "set", *words)
        self._limited.clear()
        # scancel fails for single components of a het job, but cancelling the leader also cancels its components.
        # Slurm 22.05 does not have --cron, and cancels scrontab jobs without it.
        cancel = """sh -c 'scancel --cron --quiet "$@" || scancel --quiet "$@"' cancel"""
        # One docker exec instead of three before each test. The first line is `plugin(on=False)`.
        clear = f"""
touch /etc/slurm/cpsched.off || exit
squeue --noheader --all --Format=jobid | xargs --no-run-if-empty {cancel} >/dev/null
scontrol --oneliner show reservation
"""
        for line in self.run("bash", "-c", clear).splitlines():
            if line.startswith("ReservationName="):
                self.scontrol("delete", line.split()[0])

        for node, state in self.node_states().items():
            if state.endswith(("~", "#")):  # a test of power saving failed
                self.boot(node)

        def idle() -> bool:
            states = self.node_states()
            for node, state in states.items():
                if state.rstrip("*") in ("drained", "draining", "down", "drain"):
                    self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
            return set(states.values()) == {"idle"} and not self.run("squeue", "--noheader", "--all").strip()

        wait_until(idle, 90, "an empty cluster with all nodes idle", every_s=0.3)

    def close(self) -> None:
        for container in self._python_containers.values():
            docker("rm", "--force", "--volumes", container, check=False)
        self._python_containers.clear()

    wait_until = staticmethod(wait_until)
