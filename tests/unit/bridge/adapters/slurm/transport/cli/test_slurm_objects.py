"""Nodes, partitions and reservations as scontrol prints them: an unusable object affects only itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cpsched.slurm_text import object_parsing
from cpsched.slurm_text.known_fields import JOB, KNOWN_FIELDS_BY_KIND, NODE
from cpsched.slurm_text.objects import NEVER_S, SlurmReservation
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import translate_partition
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.errors import AnswerNotUnderstood
from cpsched_bridge.ports import Observation, UnusableObject
from tests.builders import words
from tests.unit.bridge.adapters.slurm.transport.cli import standin
from tests.unit.bridge.adapters.slurm.transport.cli.standin import Job, Programs

RESERVATION = """\
ReservationName=maint StartTime=1795370000 EndTime=2100000000 Duration=05:33:20
   Nodes=n1 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   TRES=cpu=16
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)
   Comment=see n3, Nodes=n3 StartTime=0

"""


def node(name: str, *changes: tuple[str, str]) -> str:
    text = standin.NODE.format(name=name)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def partition(name: str = "main", nodes: str = "n[1-4]", *changes: tuple[str, str]) -> str:
    text = standin.PARTITION.replace("PartitionName=main", f"PartitionName={name}").replace("n[1-4]", nodes)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def read(
    nodes: str = "", partitions: str = "", reservations: str = "", jobs: Any = (Job(5),)
) -> tuple[SlurmRecords, Observation]:
    said = {
        "scontrol --all show nodes": nodes or node("n1") + node("n2"),
        "scontrol --all show partitions": partitions or partition(),
        "scontrol --all show reservations": reservations or "No reservations in the system\n",
    }
    records = SlurmCliReader(programs=Programs(jobs, broken=said)).read()
    return records, SlurmTranslator().observe(records)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("Gres=gpu:2", "Gres=gpu:2(S:0"), ("configured_gres", "unreadable")),
        (("AllocMem=0", "AllocMem=none"), ("allocated_memory", "unreadable")),
        (("   State=IDLE ThreadsPerCore=1", "   ThreadsPerCore=1"), ("state", "unreadable")),
        (("Weight=1", "Weight=1 Colour=red"), ("Colour", "unknown")),
        (("Owner=N/A", "Owner=ada(1001)"), ("Owner", "unknown")),
    ],
)
def test_unusable_node_offers_no_resources(change: tuple[str, str], fault: tuple[str, str]) -> None:
    """Its own jobs run on; the other node is as it was."""
    _, seen = read(nodes=node("n1", change) + node("n2"))
    (found,) = seen.unusable
    assert (found.kind, found.name, found.field, found.reason) == ("node", "n1", *fault)
    assert seen.free.tolist() == seen.cluster.capacity.tolist() == [[0, 0, 0], [16, 16384, 2]]
    assert [(outage.name, outage.nodes) for outage in seen.outages] == [("UNKNOWN", (0,))]
    assert [pending.job.id for pending in seen.pending] == [5]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("MaxTime=1-00:00:00", "MaxTime=1-00:00:10"), "max_time cannot be read: invalid time '1-00:00:10'"),
        (("Nodes=n1", "Nodes=n[1-"), "nodes cannot be read: node list 'n[1-': brackets do not match"),
        (("RootOnly=NO ", ""), "is_root_only cannot be read: scontrol does not print RootOnly"),
        (("LLN=NO", "LLN=YES"), "LLN=YES: this version has no rule for it"),
        (("PreemptMode=OFF", "PreemptMode=OFF Colour=red"), "Colour=red: this version has no rule for it"),
    ],
)
def test_leaves_jobs_of_unusable_partition(change: tuple[str, str], fault: str) -> None:
    jobs = [Job(5), Job(6, columns={"Partition": "odd"})]
    _, seen = read(partitions=partition("odd", "n1", change) + partition(nodes="n[1-2]"), jobs=jobs)
    assert [str(each) for each in seen.unusable] == [f"partition odd: {fault}"]
    assert [pending.job.id for pending in seen.pending] == [5]
    assert [(left.job_id, words(left.reason)) for left in seen.unmanaged] == [(6, f"partition odd: {fault}")]


@pytest.mark.parametrize(
    ("change", "closed", "start_s", "end_s"),
    [
        (("EndTime=2100000000", "EndTime=soon"), ["n1"], 1795370000, NEVER_S),
        (("StartTime=1795370000", "StartTime=soon"), ["n1"], 0, 2100000000),
        (("CoreCnt=16", "CoreCnt=16 Colour=red"), ["n1"], 1795370000, 2100000000),
        (("Nodes=n1", "Nodes=n[1-"), [], 1795370000, 2100000000),
    ],
)
def test_unusable_reservation_closes_named_nodes(
    change: tuple[str, str], closed: list[str], start_s: int, end_s: int
) -> None:
    """Of one whose nodes are not known Slurm itself marks the nodes, once it has begun."""
    records, seen = read(reservations=RESERVATION.replace(*change, 1))
    assert [(each.kind, each.name) for each in seen.unusable] == [("reservation", "maint")]
    (found,) = records.reservations
    assert (found.start_time, found.end_time) == (start_s, end_s)
    names = seen.cluster.node_names
    assert [names[node] for outage in seen.outages for node in outage.nodes] == closed


def test_unknown_field_leaves_only_its_job() -> None:
    odd = Job(6, lines={"tasks": "1 Colour=red"})
    forged = Job(7, comment="x\n   Colour=red", name="a\n   Colour=red")
    _, seen = read(jobs=[Job(5), odd, forged])
    assert [(left.job_id, words(left.reason)) for left in seen.unmanaged] == [(6, "cannot be read: Colour")]
    assert [pending.job.id for pending in seen.pending] == [5, 7]
    assert seen.unusable == (UnusableObject("job", "6", "Colour", "unreadable"),)


@pytest.mark.parametrize("name", ["nodes", "partitions", "reservations"])
def test_rejects_truncated_answer(name: str) -> None:
    texts = {"nodes": node("n1"), "partitions": partition(), "reservations": RESERVATION}
    with pytest.raises(AnswerNotUnderstood, match="is truncated"):
        read(**{name: texts[name][:-20]})


def test_names_and_values_may_contain_blanks() -> None:
    """slurm.conf takes them in quotes; groups of a directory service have them."""
    text = partition("long queue", "n1", ("AllowGroups=ALL", "AllowGroups=domain users,hpc"))
    (found,) = object_parsing.parse_partitions(text)
    assert (found.name, found.allowed_groups, found.allowed_accounts, found.unknown) == (
        "long queue", ["domain users", "hpc"], ["ALL"], None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("word", "names"), [("ALL", None), ("", None), ("(null)", None), ("N/A", None), ("lab,Ops", ["lab", "Ops"])]
)
def test_unset_list_excludes_no_job(word: str, names: list[str] | None) -> None:
    fields = {
        "AllowGroups": "allowed_groups", "AllowAccounts": "allowed_accounts", "DenyAccounts": "denied_accounts",
        "AllowQos": "allowed_qos", "DenyQos": "denied_qos",
    }  # fmt: skip
    lists = " ".join(f"{each}={word}" for each in fields)
    (found,) = object_parsing.parse_partitions(
        partition("main", "n1", ("AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL", lists))
    )
    assert {name: getattr(found, name) for name in fields.values()} == dict.fromkeys(fields.values(), names or ["ALL"])
    assert (found.unreadable, found.unknown) == (None, None)
    used = translate_partition(found, False, SlurmNodeTable.from_records(read()[0].nodes))
    allowed, denied = (frozenset({"lab", "ops"}), frozenset({"lab", "ops"})) if names else (None, frozenset())
    found_lists = used.allowed_accounts, used.denied_accounts, used.allowed_qos, used.denied_qos
    assert found_lists == (allowed, denied, allowed, denied)
    assert used.allowed_groups == (frozenset(names) if names else None), "group names are case-sensitive"


def test_user_text_is_no_field() -> None:
    below = "   Reason=State=DOWN Colour=red\nState=DOWN Sound=loud [root@now]\n   Comment=Gres=none\n\n"
    (found,) = object_parsing.parse_nodes(node("n1").rstrip("\n") + "\n" + below)
    assert (found.state, found.configured_gres, found.unknown) == ("IDLE", {"gpu": 2}, None)


@pytest.mark.parametrize(
    ("printed", "sharing"),
    [
        ("OverSubscribe=EXCLUSIVE", "EXCLUSIVE"),
        ("OverSubscribe=NO Exclusive=NODE", "EXCLUSIVE"),
        ("OverSubscribe=NO Exclusive=TOPO", "EXCLUSIVE"),
        ("OverSubscribe=YES:4 Exclusive=NO", "YES:4"),
    ],
)
def test_reads_exclusive_field_of_26_05(printed: str, sharing: str) -> None:
    (found,) = object_parsing.parse_partitions(partition("main", "n1", ("OverSubscribe=NO", printed)))
    assert found.oversubscribe == sharing


@pytest.mark.parametrize(
    ("in_partition", "in_slurm_conf"),
    [("DefCpuPerGPU=4,DefMemPerGPU=9,DefNew=1", None), ("(null)", "DefMemPerGPU=9,DefNew=1")],
)
def test_leaves_gpu_jobs_of_partition_with_unknown_defaults(in_partition: str, in_slurm_conf: str | None) -> None:
    """Slurm adds defaults when it looks for nodes: the record of a held job does not show them."""
    gpus = Job(6, columns={"tres-per-node": "gres/gpu:1"})
    text = partition("main", "n[1-2]", ("JobDefaults=(null)", f"JobDefaults={in_partition}"))
    records, _ = read(partitions=text, jobs=[Job(5), gpus])
    seen = SlurmTranslator(job_defaults=in_slurm_conf).observe(records)
    left = [words(left.reason) for left in seen.unmanaged]
    assert left == ["requests GPUs on partition main, which sets DefNew=1"]
    assert [pending.job.id for pending in seen.pending] == [5]


def test_each_field_is_in_one_list() -> None:
    for known in KNOWN_FIELDS_BY_KIND.values():
        lists = [known.read, known.harmless, known.text, known.only.keys()]
        assert sum(map(len, lists)) == len(known.names)
    assert NODE.find_unsupported_fields({"MCS_label": "N/A", "Gres": "x", "New": "y" * 200}) == {"New": "y" * 80}


def test_memory_per_gpu_is_known_but_unsupported():
    """With `--mem-per-gpu`, scontrol prints this field in place of MinMemoryCPU and MinMemoryNode."""
    field = {"MinMemoryTRES": "100M"}
    assert ("MinMemoryTRES" in JOB.names, JOB.find_unsupported_fields(field)) == (True, field)


RECORDED = Path(__file__).parents[6] / "data" / "slurm" / "policy" / "partitions.txt"


def test_recorded_partitions_have_no_unknown_field() -> None:
    text = re.sub(r" (?=AllowGroups|AllocNodes|DefaultTime|MaxNodes|Nodes|Priority|OverTime|State|JobDef|DefMem|TRES)",
                  "\n   ", RECORDED.read_text()).replace("\nPartitionName", "\n\nPartitionName")  # fmt: skip
    found = object_parsing.parse_partitions(text.rstrip("\n") + "\n\n")
    assert ({each.unknown or each.unreadable for each in found}, len(found) > 1) == ({None}, True)


CORES_26_05 = """\
ReservationName=some StartTime=1795611180 EndTime=1795614780 Duration=01:00:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=3 Features=(null) PartitionName=main Flags=MAGNETIC,PURGE_COMP=00:05:00
     NodeName=n1 CoreIDs=0,8
     NodeName=n2 CoreIDs=0-3
   TRES=cpu=6,gres/gpu=1
   AllowedPartitions=main QOS=-slow
   Users=-bob,-carl Groups=(null) Accounts=lab Licenses=(null) State=ACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)
   Comment=below
     NodeName=n3 CoreIDs=7

"""
CORES_22_05 = """\
ReservationName=some StartTime=1795611180 EndTime=1795614780 Duration=01:00:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=3 Features=(null) PartitionName=main Flags=MAGNETIC,PURGE_COMP=00:05:00
     NodeName=n1 CoreIDs=0,8
     NodeName=n2 CoreIDs=0-3
   TRES=cpu=6,gres/gpu=1
   Users=-bob,-carl Groups=(null) Accounts=lab Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)

"""
CORES_READ = {
    "name": "some",
    "nodes": "n[1-2]",
    "cpu_ids_by_node": {"n1": "0,8", "n2": "0-3"},
    "tres": {"cpu": 6, "gres/gpu": 1},
    "partition": "main",
    "flags": ["MAGNETIC", "PURGE_COMP=00:05:00"],
    "start_time": 1795611180,
    "end_time": 1795614780,
    "users": ["-bob", "-carl"],
    "groups": [],
    "accounts": ["lab"],
    "qos": ["-slow"],
    "allowed_partitions": ["main"],
    "licenses": [],
    "comment": "below",
}


@pytest.mark.parametrize(
    ("printed", "read"),
    [(CORES_26_05, CORES_READ), (CORES_22_05, CORES_READ | {"qos": [], "allowed_partitions": [], "comment": None})],
)
def test_parses_core_reservation(printed: str, read: dict[str, object]) -> None:
    """26.05 and 22.05; a comment that looks like a line of cores is none."""
    assert object_parsing.parse_reservations(printed) == [SlurmReservation(**read)]


def test_license_reservation_has_no_nodes() -> None:
    printed = CORES_26_05.replace("Nodes=n[1-2]", "Nodes=(null)").replace(
        "     NodeName=n1 CoreIDs=0,8\n     NodeName=n2 CoreIDs=0-3\n", ""
    )
    found = object_parsing.parse_reservations(printed.replace("Licenses=(null)", "Licenses=a:2,b"))[0]
    assert (found.nodes, found.cpu_ids_by_node, found.licenses) == (None, {}, ["a:2", "b"])
