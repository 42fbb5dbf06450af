"""Output of Slurm 25.11 to 26.11 and of unknown releases, from text to observation.

These releases cannot be run here. The texts are written by hand from Slurm's source.
"""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Observation
from tests.builders import words
from tests.unit.bridge.adapters.slurm.transport.cli.standin import CONFIG, NODE, PARTITION, Job, Programs

ON_N1: dict[str, Any] = {"NodeList": "n1", "NumCPUs": "4", "tres-alloc": "cpu=4,mem=4G,node=1"}


def observe(*jobs: Job, translator: SlurmTranslator | None = None, **shown: str) -> Observation:
    """Return the observation, with other output of `scontrol show` by the kind of object."""
    programs = Programs(jobs)
    for kind, text in shown.items():
        command = "scontrol show config" if kind == "config" else f"scontrol --all show {kind}"
        programs.broken[command] = text
    return (translator or SlurmTranslator()).observe(SlurmCliReader(programs=programs).read())


def list_left(observation: Observation) -> dict[int, str]:
    return {each.job_id: words(each.reason).partition(":")[0] for each in observation.unmanaged}


def test_job_in_any_state_is_listed_or_has_ended() -> None:
    """An unknown state takes only its own job out of management, and its nodes stay in use until it ends."""
    waiting = ["RESV_DEL_HOLD", "EXPEDITING", "REQUEUE_HOLD", "SPECIAL_EXIT", "REVOKED", "REQUEUED", "LATER_STATE"]
    jobs = [Job(number, columns={"State": state}) for number, state in enumerate(waiting, 11)]
    ended = [Job(30, columns={"State": "LATER_END", "EndTime": "1795379600"}), Job(31, columns={"State": "TIMEOUT"})]
    observation = observe(Job(5), Job(6, columns={"State": "LATER_RUN", **ON_N1}), *jobs, *ended)
    assert list_left(observation) == dict(enumerate(waiting, 11)) | {6: "LATER_RUN"}
    pending, running = ([each.job.id for each in jobs] for jobs in (observation.pending, observation.running))
    assert (pending, running, observation.free[0, 0]) == ([5], [6], 12)
    assert sorted(map(str, observation.unusable)) == [
        "job 17: state=LATER_STATE: this version has no rule for it",
        "job 6: state=LATER_RUN: this version has no rule for it",
    ]


def test_expedited_job_keeps_its_nodes_until_it_runs() -> None:
    translator = SlurmTranslator()
    for state, nodes in (("RUNNING", ON_N1), ("COMPLETING", ON_N1), ("EXPEDITING", {}), ("RUNNING", ON_N1)):
        observation = observe(Job(6, columns={"State": state, **nodes}), translator=translator)
        assert (observation.free[0, 0], list_left(observation)) == (12, {} if nodes else {6: "EXPEDITING"})
    assert observe(translator=translator).free[0, 0] == 16


def test_unlimited_job_does_not_get_default_time() -> None:
    """Only `Partition_Limit` stands for the partition's time. The partition has DefaultTime=1 h."""
    limits = {5: "Partition_Limit", 6: "00:30:00", 7: "UNLIMITED"}
    unlimited = PARTITION.replace("MaxTime=1-00:00:00", "MaxTime=UNLIMITED")
    observation = observe(*(Job(n, lines={"limit": limit}) for n, limit in limits.items()), partitions=unlimited)
    walltimes_s = {each.job.id: each.job.walltime_s for each in observation.pending}
    assert walltimes_s == {5: 3600, 6: 1800, 7: UNLIMITED_WALLTIME_S}


@pytest.mark.parametrize("limit", ["MaxNodes", "MaxCPUsPerNode"])
def test_partition_limit_of_zero_admits_no_job(limit: str) -> None:
    observation = observe(Job(5), partitions=PARTITION.replace(f"{limit}=UNLIMITED", f"{limit}=0"))
    assert not any(each.job.ineligible is None for each in observation.pending)


FIELDS = "Extra={extra}\n   GresEnforceBind={binding}\n   Runtime=podman Container=(null) ContainerID=(null)\n   "


@pytest.mark.parametrize(
    ("parameters", "extra", "binding", "nodes", "reason"),
    [
        ("", "rack=7", "No", "1-1", None),
        (",extra_constraints", "rack=7", "No", "1-1", "filters nodes by --extra (extra_constraints)"),
        (",extra_constraints", "", "No", "1-1", None),
        ("", "", "Yes", "1-1", "requests generic resources on the sockets of its CPUs"),
        ("", "", "No", "2,4,8", "lists several numbers of nodes"),
        ("", "", "No", "2:4:8", "lists several numbers of nodes"),
    ],
)
def test_leaves_job_whose_field_is_a_request(
    parameters: str, extra: str, binding: str, nodes: str, reason: str | None
) -> None:
    lines = {"below": FIELDS.format(extra=extra, binding=binding), "nodes": nodes, "tasks": "8"}
    job = Job(5, lines={**lines, "requested": "cpu=8,mem=1000M,node=1,billing=1,gres/gpu=1"})
    config = CONFIG.format(plugins="lua").replace("disable_job_shrink", f"disable_job_shrink{parameters}")
    assert list_left(observe(job, config=config)) == ({} if reason is None else {5: reason})


RESERVATION = """\
ReservationName=r StartTime=1795379000 EndTime=2000000000 Duration=10
   Nodes=n2 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags={flags}
     NodeName=n2 CoreIDs=0-3
   TRES=cpu=4
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)

"""


@pytest.mark.parametrize(
    ("flags", "free", "unusable"),
    [
        ("FORCE_START,SPEC_NODES,PURGE_COMP=00:05:00", 12, []),
        ("LATER_FLAG,SPEC_NODES", 0, ["reservation r: flags=LATER_FLAG: this version has no rule for it"]),
    ],
)
def test_unknown_reservation_flag_closes_its_nodes(flags: str, free: int, unusable: list[str]) -> None:
    nodes = NODE.format(name="n1") + NODE.format(name="n2")
    observation = observe(Job(5), nodes=nodes, reservations=RESERVATION.format(flags=flags))
    assert (observation.free[:, 0].tolist(), list(map(str, observation.unusable))) == ([16, free], unusable)


def test_unknown_word_takes_only_its_object_out() -> None:
    """A later node flag and a later field: the other node and the other job stay in management."""
    nodes = NODE.format(name="n1") + NODE.format(name="n2").replace("State=IDLE", "State=IDLE+EXTERNAL")
    later = Job(5, lines={"excluded": "(null)\n   LaterField=7"})
    wide = Job(7, columns={"NumNodes": "2", "MaxNodes": "2"}, lines={"nodes": "2-2", "tasks": "2"})
    observation = observe(later, Job(6), wide, nodes=nodes)
    too_large = "its allowed nodes cannot hold it on 2 nodes, even if they are empty"
    assert list_left(observation) == {5: "cannot be read", 7: too_large}
    assert ([each.job.id for each in observation.pending], observation.free[:, 0].tolist()) == ([6], [16, 0])
    assert sorted(map(str, observation.unusable)) == [
        "job 5: LaterField cannot be read",
        "node n2: state=IDLE+EXTERNAL: this version has no rule for it",
    ]
