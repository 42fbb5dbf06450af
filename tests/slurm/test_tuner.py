"""The tuner beside a bridge on a real Slurm: it says, and then changes, what it should, and no cycle notices it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

WORST = {"objective": "awf"}
"""An objective that lets the jobs of these weeks wait for longer than others do."""
CPU_S, MEMORY_MIB = 900, 1024
ANSWERED_S = 600
"""The process has the lowest priority, beside whatever else the machine does."""

SEEN = """
import json, time
from dataclasses import replace
from pathlib import Path
from cpsched.model import EndedJob
from cpsched_bridge.adapters.slurm.adapter import SlurmBackend
from cpsched_bridge.adapters.slurm.options import Options, transport_of
from cpsched_bridge.store.weeks import WeeksFile
from tests.unit.sim.tuning.weeks import DAY_S, weeks

cluster = SlurmBackend(transport_of(Options(transport="cli", deadline_s=60.0))).observe().cluster
size, days, now_s = int(cluster.capacity[:, 0].sum()) // 16, 21, int(time.time())
rest, ended = (0,) * (len(cluster.resources) - 1), []
for entry in weeks(days=days).jobs:
    request = replace(entry.job.request, per_unit=(size, *rest))
    job = replace(entry.job, submit_s=now_s - days * DAY_S + entry.job.submit_s, request=request)
    if job.submit_s + entry.run_s < now_s:
        ended.append((EndedJob(job, job.submit_s, job.submit_s + entry.run_s), "all"))
WeeksFile(Path(state) / "weeks.jsonl").add(ended)
print(len(ended))
"""
"""Three weeks in which the machine had a queue, as a bridge would have noted them."""
A_DAY_LATER = """
path = f"{state}/tuning.json"
kept = json.load(open(path))
kept["asked_s"] = 0
json.dump(kept, open(path, "w"))
print(json.dumps(None))
"""
"""The tuner asks once in `every_h`: of a bridge that is down, the file says when it last asked."""


class TunedBridge(LiveBridge):
    """A bridge with a tuner, which has seen three weeks of a crowded site."""

    def __init__(self, slurm: Slurm, **settings: Any) -> None:
        super().__init__(slurm, "tuner", **settings)
        self.settings = json.loads(self.shell(f"cat {self.config}"))
        assert self.read(SEEN) > 500

    def begin_again(self, mode: str, *, signal: str = "TERM", asked: bool = True) -> None:
        """The next process of this bridge, with the tuner in another mode; it asks at once, unless it asked today."""
        if self.alive():
            self.kill(signal)
        if asked:
            self.read(A_DAY_LATER)
        self.settings["tune"]["mode"] = mode
        self.shell(f"cat > {self.config}", stdin=json.dumps(self.settings))
        self.start()

    def tuner(self) -> int | None:
        """The id of the tuner's process."""
        found = self._processes("-f cpsched_bridge.program.tuning_process")
        return found[0] if found else None

    def told(self, kind: str) -> list[str]:
        """What the journal's events of a kind say, oldest first."""
        query = "select detail from events where kind = ? order by seq"
        return [words for (words,) in self.read(f"print(json.dumps(rows('journal', {query!r}, {kind!r})))")]

    def wait_for(self, kind: str, count: int = 1) -> str:
        """The detail of the event that makes `count` of its kind."""
        found = wait_until(
            lambda: (seen := self.told(kind)) and len(seen) >= count and seen,
            ANSWERED_S, f"{kind}, {count} times\n{self.log()[-2000:]}", every_s=1.0,
        )  # fmt: skip
        return str(found[count - 1])

    def objective(self) -> list[str]:
        """The objective in force, and where it is from."""
        (line,) = re.findall(r"policy\.dispatcher_settings\.objective +(\S+ +\S+)", self.cpsched("policy"))
        return line.split()


def through(slurm: Slurm, bridge: TunedBridge) -> None:
    """Jobs go through the bridge as ever, each started once where it was decided."""
    jobs = [slurm.sbatch("-n2", "-t1"), slurm.sbatch("-N2", "-t1")]
    slurm.wait_for_state(jobs, "COMPLETED", 120)
    bridge.wait_for_ends(jobs)
    wait_until(lambda: slurm.sacct(jobs).keys() >= set(jobs), 60, "accounting has both")
    ledger, ran = bridge.ledger(), slurm.sacct(jobs)
    assert {job: ran[job].nodes for job in jobs} == {job: ledger[job].nodes for job in jobs}
    assert {job.restarts for job in ran.values()} == {0}


def test_the_tuner_advises_changes_and_goes_back_beside_a_live_cluster(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    tune = {"mode": "advise", "every_h": 24, "weeks": 2, "cpu_s": CPU_S, "memory_mib": MEMORY_MIB}
    policy = {"dispatcher": "lookahead", "dispatcher_settings": WORST}
    with TunedBridge(slurm, policy=policy, tune=tune) as bridge:
        # Its process has the least priority and the limits of the settings. Killed, it is an event, and nothing else.
        tuner = wait_until(bridge.tuner, 120, "the tuner's process")
        limits = wait_until(lambda: f" {CPU_S} " in (seen := bridge.shell(f"cat /proc/{tuner}/limits")) and seen, 120)
        assert re.search(rf"Max cpu time +{CPU_S} +{CPU_S + 5} ", limits)
        assert re.search(rf"Max data size +{MEMORY_MIB * 2**20} +{MEMORY_MIB * 2**20} ", limits)
        assert bridge.shell(f"ps -o ni= -p {tuner}").strip() == "19"
        through(slurm, bridge)
        bridge.shell(f"kill -KILL {tuner}")
        assert bridge.wait_for("tuning_failed") == "its process ended without an answer (exit status -9)"
        through(slurm, bridge)
        assert bridge.metric("cpsched_tuned") == 0.0

        # Advice is told, and changes nothing.
        bridge.begin_again("advise")
        wait_until(bridge.tuner, 120, "the next process")
        through(slurm, bridge)
        advice = bridge.wait_for("tuning_advises")
        assert advice.startswith("Change ")
        assert advice in " ".join(bridge.cpsched("status").split())
        assert bridge.metric("cpsched_tuning_expected_ratio") < 0.97
        assert bridge.metric("cpsched_tuned") == 0.0
        assert bridge.objective() == ["awf", "file"]

        # In mode `on` the policy changes between two cycles.
        bridge.begin_again("on")
        changes = bridge.wait_for("tuned")
        bridge.wait_for_rounds(2)
        assert bridge.metric("cpsched_tuned") == 1.0
        objective, source = bridge.objective()
        assert (objective != "awf", source) == (True, "tuner")
        assert f"objective={objective}" in changes
        through(slurm, bridge)

        # A bridge that is killed decides by the same afterwards.
        bridge.begin_again("on", signal="KILL", asked=False)
        assert bridge.objective() == [objective, "tuner"]
        through(slurm, bridge)
        assert bridge.metric("cpsched_tuned") == 1.0
        assert len(bridge.told("tuned")) == 1

        # `off` goes back to what the settings file says.
        bridge.begin_again("off", asked=False)
        assert bridge.objective() == ["awf", "file"]
        through(slurm, bridge)
        assert bridge.metric("cpsched_tuned") == 0.0
        assert ", 0 different" in bridge.cpsched("journal", "replay", "--all")
        assert {kind for kind in bridge.events() if "fail" in kind or "error" in kind} == {"tuning_failed"}
