"""cpsched-deadman as a process, with stand-ins for squeue, scontrol and cpsched that simulate a small cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "systemd" / "cpsched-deadman"

SQUEUE = """
import re, sys
state = load("squeue " + " ".join(sys.argv[1:]))
if state["squeue_fails"] > 0:
    state["squeue_fails"] -= 1
    save(state)
    sys.exit(1)
if state["squeue_good"] is not None:
    state["squeue_good"] -= 1
    state["squeue_fails"] = 99 if state["squeue_good"] == 0 else 0
    save(state)
wanted = next(a for a in sys.argv if a.startswith("--Format=")).removeprefix("--Format=")
for job in state["jobs"]:
    line = ""
    for part in wanted.split(","):
        name, end = part.split(":")
        line += str(job[name]) + end
    sys.stdout.buffer.write(line.encode("latin-1") + b"\\n")
"""

SCONTROL = """
import sys
def run(words, state):
    if words[:2] == ["show", "config"]:
        print("JobSubmitPlugins        = " + ("lua" if state["plugin"] else "(null)") + "\\nMore = words" * 20_000)
        return
    if words[:3] == ["--oneliner", "show", "reservation"]:
        if state["claims"]:
            print("ReservationName=cpsched-bridge Nodes=n1", state["lease_field"] + "=" + state["claims"][0], "")
            state["claims"] = state["claims"][1:] or state["claims"]
        return
    if words[0] == "update":
        settings = dict(w.split("=", 1) for w in words[1:])
        names, act = [settings["JobId"]], lambda job: job.update(reqnodes=settings["ReqNodeList"], pinned=False)
    else:
        assert words[0] == "release", words
        import re
        names, act = re.split(",(?![^\\\\[]*\\\\])", words[1]), lambda job: job.update(priority=0.5, reason="None")
    for job in state["jobs"]:
        name = job["jobarrayid"].replace("%2]", "]").replace("1-4:2,7,12-17:5", "1,3,7,12,17")
        if name in names and name not in state["stubborn"]:
            act(job)
            if words[0] == "update":
                job["comment"] = " ".join(w for w in job["comment"].split(" ") if not w.startswith("bridge:pinned("))
commands = [sys.argv[1:]] if len(sys.argv) > 1 else [line.split() for line in sys.stdin]
for words in commands:
    state = load("scontrol " + " ".join(words))
    run(words, state)
    save(state)
"""

CPSCHED = """
import sys
state = load("cpsched " + " ".join(sys.argv[1:]))
print("the bridge no longer holds any job" if state["ledger_works"] else "storage error")
sys.exit(0 if state["ledger_works"] else 1)
"""

COMMON = """#!{python} -IS
import json, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # the disk is not full here
def load(said):
    state = json.load(open({path!r}))
    state["said"].append(said)
    save(state)
    return state
def save(state):
    json.dump(state, open({path!r}, "w"))
"""


@dataclass(slots=True)
class Job:
    """A pending job as squeue shows it; as given here it waits for the bridge, held by the plugin."""

    jobarrayid: str
    priority: float = 0.0
    reason: str = "JobHeldUser"
    restartcnt: int = 0
    admin_comment: str = "bridge:wait"
    comment: str = ""
    reqnodes: str = ""

    @property
    def held(self) -> bool:
        return self.priority == 0


@dataclass(slots=True)
class Told:
    """What came of a run: exit code, words, and the commands that the stand-ins were given."""

    status: int
    words: str
    commands: list[str]
    jobs: dict[str, Job]

    @property
    def kept(self) -> set[str]:
        return {name for name, job in self.jobs.items() if job.held}


class DeadMan:
    """A folder with the stand-ins, the cluster's state, and a heartbeat."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state.json"
        self.heartbeat = folder / "var" / "heartbeat"
        self.heartbeat.parent.mkdir()
        self.path = folder / "bin"
        self.path.mkdir()
        self.put(jobs=[])
        for name, body in (("squeue", SQUEUE), ("scontrol", SCONTROL), ("cpsched", CPSCHED)):
            self.command(name, COMMON.format(python=sys.executable, path=str(self.state)) + body)

    def command(self, name: str, text: str) -> None:
        """Put a command before all others of that name."""
        file = self.path / name
        file.write_text(text)
        file.chmod(0o755)

    def put(self, *, jobs: list[Job], **other: object) -> DeadMan:
        """The cluster as it is now. `stubborn` jobs are not changed by any command; `claims` are read one by one."""
        world = {"plugin": True, "squeue_fails": 0, "squeue_good": None, "stubborn": [], "ledger_works": True}
        world |= {"claims": [], "lease_field": "Comment"}
        self.state.write_text(json.dumps({**world, "said": [], **other, "jobs": [asdict(job) for job in jobs]}))
        return self

    def beat(self, age_s: float) -> DeadMan:
        self.heartbeat.touch()
        then = time.time() - age_s
        os.utime(self.heartbeat, (then, then))
        return self

    def environment(self, **settings: str) -> dict[str, str]:
        return {
            "PATH": f"{self.path}:{os.environ['PATH']}",
            "CPSCHED_HEARTBEAT": str(self.heartbeat),
            "CPSCHED_DEADMAN_STALE_S": "60",
            "CPSCHED_DEADMAN_CONFIRM_S": "0",
            **settings,
        }

    def run(self, *arguments: str, before: str = "", stdout: str = "", **settings: str) -> Told:
        """One run to its end; `before` are shell commands in the same shell, `stdout` a file for what it says."""
        shell = f"{before}\nexec bash {SCRIPT} {' '.join(arguments)} {f'>{stdout}' if stdout else ''}"
        done = subprocess.run(
            ["bash", "-c", shell], env=self.environment(**settings), capture_output=True, text=True, timeout=60
        )
        assert done.stderr == "", done.stderr
        state = json.loads(self.state.read_text())
        jobs = {job["jobarrayid"]: Job(**{key: job[key] for key in Job.__slots__}) for job in state["jobs"]}
        return Told(done.returncode, done.stdout.replace("cpsched-deadman: ", ""), state["said"], jobs)
