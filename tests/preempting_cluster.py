"""A simulated cluster whose running jobs may be preempted, as the Slurm adapter shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from cpsched.site.accounts import Qos
from cpsched.site.preemption import PreemptionRules
from cpsched.site.site_policy import SitePolicy
from cpsched_bridge.adapters.slurm.policy.preemptors import PreemptorsLeftToSlurm
from cpsched_bridge.ports import Observation, Outcome, PreemptionOptions, Victim, VictimMode
from tests.builders import a_slurm_job
from tests.fakes import FakeCluster


@dataclass
class Preempting:
    """What a `FakeCluster` lacks: jobs of QOS `high` may preempt those of QOS `low`, only on command."""

    preemption_options: PreemptionOptions | None = None
    mode: VictimMode = "requeue"
    ending_s: int = 0
    """How long a stopped job holds its nodes."""
    kill_wait_s: int = 30
    ending: dict[Victim, int] = field(default_factory=dict)
    """The stopped runs that still hold their nodes, and until when."""
    leaver: PreemptorsLeftToSlurm = field(default_factory=PreemptorsLeftToSlurm)

    def read(self) -> Observation:
        for victim, until_s in list(self.ending.items()):
            if not self._runs(victim):
                del self.ending[victim]
            elif self.now_s >= until_s:
                del self.ending[victim]
                self.stop(victim.job_id)
        ending = {victim.job_id for victim in self.ending}
        records = [
            a_slurm_job(
                id, "COMPLETING" if id in ending else "RUNNING", qos=fake.job.qos, partition="main",
                is_requeueable=True, is_batch_job=True,
            )
            for id, fake in self.jobs.items() if fake.running
        ]  # fmt: skip
        qos = {name: Qos(name) for name in ("high", "low")}
        rules = PreemptionRules("qos", self.mode, {"high": frozenset({"low"})}, kill_wait_s=self.kill_wait_s)
        policy = SitePolicy(qos=qos, preemption=rules)
        return self.leaver.leave(super().read(), records, policy, self.preemption_options)

    def preempt(self, victims: Sequence[Victim]) -> Sequence[Outcome]:
        return self._batch("preempt", [each.job_id for each in victims], [partial(self.stop_one, v) for v in victims])

    def stop_one(self, victim: Victim) -> Outcome:
        if not self._runs(victim) or victim in self.ending:
            return Outcome(victim.job_id, "refused", "does not run")
        if self.ending_s:
            self.ending[victim] = self.now_s + self.ending_s
        else:
            self.stop(victim.job_id)
        return Outcome(victim.job_id, "done")

    def _runs(self, victim: Victim) -> bool:
        fake = self.jobs.get(victim.job_id)
        return fake is not None and fake.running and fake.start_s == victim.start_s

    def stop(self, job_id: int) -> None:
        """End a job that was preempted."""
        self.end(job_id) if self.mode == "cancel" else self.requeue(job_id)


@dataclass
class PreemptingCluster(Preempting, FakeCluster):
    """A simulated cluster whose jobs of QOS `high` may preempt those of QOS `low`."""
