"""Reservations: the nodes that they close, and the jobs that are unmanaged because of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cpsched.slurm_text.objects import SlurmReservation
from cpsched_bridge.adapters.shared.lease_text import format_lease
from cpsched_bridge.adapters.slurm.translation import slurm_reservations
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import translate_reservations
from cpsched_bridge.adapters.slurm.translation.start_split_prediction import defer_reservation_conflicts
from cpsched_bridge.ports import Lease, Observation, Outage, Outcome, StartOrder
from tests.builders import a_job, words
from tests.unit.bridge.adapters.slurm.scenes import LATER, Scene, observe

HOUR_S = 3600
CORES = 0


def scene_with(*names: str, **facts: Any) -> Scene:
    """`names` wait on four idle nodes of 16 cores, n1 and n2 with two GPUs, beside one reservation of bob's."""
    scene = Scene().only(*(names or ("first",)))
    record = {**LATER["reservations"], "name": "r", "nodes": "n[1-4]", "users": ["bob"], "accounts": []}
    record |= {"start_time": scene.now_s - 60, "end_time": scene.now_s + HOUR_S, **facts}
    scene.rows["reservations"] = [record]
    for node in scene.rows["nodes"]:
        active = record["start_time"] <= scene.now_s
        node["state"] = "IDLE+RESERVED" if active else "IDLE"
    return scene


def free(scene: Scene, column: str = "cores") -> list[int]:
    seen = observe(scene)
    found: list[int] = seen.free[:, seen.cluster.resources.index(column)].tolist()
    return found


def nodes_of(seen: Observation) -> list[str]:
    """Where the one waiting job may go."""
    mask = seen.cluster.node_sets[seen.pending[0].job.request.node_set]
    return [name for name, ok in zip(seen.cluster.node_names, mask, strict=True) if ok]


SOME = {"n1": "0,8", "n2": "0-3", "n3": "1", "n4": "5"}


@pytest.mark.parametrize(
    ("facts", "cores"),
    [
        ({}, [0, 0, 0, 0]),
        ({"cpu_ids_by_node": SOME}, [14, 12, 15, 15]),
        ({"cpu_ids_by_node": {"n1": "0-15", "n2": "0"}, "nodes": "n[1-2]"}, [0, 15, 0, 0]),
        ({"cpu_ids_by_node": {"n1": "0"}}, [15, 0, 0, 0]),
        ({"cpu_ids_by_node": {**SOME, "n2": "0-x"}}, [14, 0, 15, 15]),
        ({"cpu_ids_by_node": SOME, "flags": ["MAINT", "SPEC_NODES"]}, [0, 0, 0, 0]),
        ({"cpu_ids_by_node": SOME, "flags": ["PART_NODES"]}, [0, 0, 0, 0]),
        ({"cpu_ids_by_node": SOME, "flags": ["FLEX", "IGNORE_JOBS", "OVERLAP", "REPLACE", "DAILY"]}, [14, 12, 15, 15]),
        ({"cpu_ids_by_node": SOME, "flags": None}, [0, 0, 0, 0]),
        ({"cpu_ids_by_node": None}, [0, 0, 0, 0]),
        ({"cpu_ids_by_node": SOME, "end_time": 1}, [0, 0, 0, 0]),
    ],
)
def test_reservation_closes_its_cores(facts: dict[str, Any], cores: list[int]) -> None:
    """What cannot be read closes whole nodes, and so does Slurm's own mark where no reservation explains it."""
    assert free(scene_with(**facts)) == cores


@pytest.mark.parametrize(("cores", "cpus"), [(4, [12, 8, 14, 14]), (8, [14, 12, 15, 15])])
def test_reserved_cores_count_with_their_cpus(cores: int, cpus: list[int]) -> None:
    """Two threads per core: Slurm allocates them only if a node has more CPUs than cores."""
    scene = scene_with(cpu_ids_by_node=SOME)
    scene.with_each_node(threads_per_core=2, cores_per_socket=cores)
    assert free(scene) == cpus


@pytest.mark.parametrize(
    ("nodes", "tres", "gpus", "memory_mib"),
    [
        ("n1", {"cpu": 2, "gres/gpu": 1, "mem": 500}, [1, 2], [15500, 16000]),
        ("n[1-2]", {"cpu": 6, "gres/gpu": 1, "mem": 600}, [1, 1], [15800, 15600]),
        ("n[1-2]", {"cpu": 6, "gres/gpu": 1, "mem": 601}, [1, 1], [15799, 15599]),
        ("n[1-2]", {"cpu": 6, "gres/gpu": 5}, [0, 0], [16000, 16000]),
        ("n[1-2]", None, [2, 2], [16000, 16000]),
    ],
)
def test_reserved_cores_take_memory_and_possibly_gpus(
    nodes: str, tres: dict[str, int] | None, gpus: list[int], memory_mib: list[int]
) -> None:
    cores = {name: SOME[name] for name in ("n1", "n2") if name == nodes or nodes == "n[1-2]"}
    scene = scene_with(nodes=nodes, cpu_ids_by_node=cores, tres=tres)
    for name in ("n2", "n3", "n4"):
        if name not in cores:
            scene.node(name)["state"] = "IDLE"
    assert [free(scene, name)[:2] for name in ("gpu", "memory_mib")] == [gpus, memory_mib]


def test_reservation_of_typed_gpus_leaves_other_types() -> None:
    scene = scene_with(nodes="n2", cpu_ids_by_node={"n2": "0"}, tres={"gres/gpu": 1, "gres/gpu:a100": 1})
    scene.node("n2").update(state="IDLE+RESERVED", configured_gres={"gpu:a100": 1, "gpu:v100": 1})
    assert [free(scene, name)[1] for name in ("gpu", "gpu:a100", "gpu:v100")] == [1, 0, 1]


@pytest.mark.parametrize(("ends_in_s", "is_current"), [(1, True), (0, False)])
def test_reservation_ends_at_its_end_time(ends_in_s: int, is_current: bool) -> None:
    scene = scene_with(nodes="n2")
    scene.rows["reservations"][0]["end_time"] = scene.now_s + ends_in_s
    records = scene.read()
    machine = SlurmNodeTable.from_records(records.nodes)
    found = translate_reservations(records.reservations, records.nodes, machine, scene.now_s)
    assert bool(found) is is_current


def test_job_inside_reservation_uses_its_cores_and_frees_none() -> None:
    """2 of 4 reserved cores are in use by its own job: 12 are free for others, and stay so when it ends."""
    scene = scene_with("first", nodes="n2", cpu_ids_by_node={"n2": "0-3"})
    running = {**scene.job("first"), "id": 900, "name": "theirs", "state": "RUNNING", "allocated_nodes": "n2"}
    tres = {"cpu": 2, "mem": 2000, "node": 1}
    running |= {"cpus": 2, "allocated_tres": tres, "start_time": scene.now_s - 50, "reservation": "r", "priority": 1}
    scene.rows["jobs"].append(running)
    scene.node("n2").update(state="MIXED+RESERVED", allocated_cpus=2, allocated_memory=2000)
    for reservation, cores, placement in (("r", 12, ()), (None, 10, ((1, 1),))):
        running["reservation"] = reservation
        seen = observe(scene)
        found = [(each.job.id, each.placement) for each in seen.running]
        assert (seen.free[1, CORES], found) == (cores, [(900, placement)])


def test_whole_node_job_avoids_partly_reserved_nodes() -> None:
    """The fit rule wants such nodes wholly free, and later ones are taken out of what it may use."""
    scene = scene_with("exclusive", nodes="n[1-2]", cpu_ids_by_node={"n1": "0", "n2": "0"})
    scene.rows["reservations"][0].update(start_time=scene.now_s + 60)
    scene.with_each_node(state="IDLE")
    assert nodes_of(observe(scene)) == ["n3", "n4"]


def test_only_whole_nodes_are_outages() -> None:
    scene = scene_with(cpu_ids_by_node={"n1": "0"}, nodes="n[1-2]")
    for name in ("n3", "n4"):
        scene.node(name)["state"] = "IDLE"
    scene.node("n1")["state"] = "IDLE+DRAIN+RESERVED"
    at, end = scene.now_s, scene.now_s + HOUR_S
    assert observe(scene).outages == (
        Outage("reserved", "r", (1,), at - 60, end),
        Outage("drained", "IDLE+DRAIN", (0,), at, None),
    )


@pytest.mark.parametrize(
    ("start_in_s", "cores", "minutes", "nodes"),
    [
        (7200, "0-11", 60, ["n1", "n2", "n3", "n4"]),
        (1800, "0-11", 60, ["n1", "n2", "n3", "n4"]),
        (1800, "0-12", 60, ["n1", "n3", "n4"]),
        (3600, "0-12", 60, ["n1", "n2", "n3", "n4"]),
        (3599, "0-12", 60, ["n1", "n3", "n4"]),
    ],
)
def test_job_uses_nodes_where_it_fits_with_reserved_cores(
    start_in_s: int, cores: str, minutes: int, nodes: list[str]
) -> None:
    """The job takes four cores; n2 has 16, and all of them are free until the reservation begins."""
    scene = scene_with(nodes="n2", cpu_ids_by_node={"n2": cores})
    scene.job("first").update(cpus=4, cpus_per_task=4, min_cpus_per_node=4, time_limit=minutes)
    times = {"start_time": scene.now_s + start_in_s, "end_time": scene.now_s + start_in_s + HOUR_S}
    scene.rows["reservations"][0].update(times)
    scene.with_each_node(state="IDLE")
    seen = observe(scene)
    found = nodes_of(seen), seen.free[:, CORES].tolist(), seen.pending[0].job.ineligible
    assert found == (nodes, [16, 16, 16, 16], None)


@pytest.mark.parametrize(("minutes", "nodes"), [(60, ["n1", "n3", "n4"]), (20, ["n1", "n2", "n3", "n4"])])
def test_jobs_running_at_reservation_begin_count(minutes: int, nodes: list[str]) -> None:
    """8 cores of n2 are reserved in half an hour, and 8 others run until then or longer; the job takes four."""
    scene = scene_with(nodes="n2", cpu_ids_by_node={"n2": "0-7"})
    scene.rows["reservations"][0].update(start_time=scene.now_s + 1800)
    scene.job("first").update(cpus=4, cpus_per_task=4, min_cpus_per_node=4, time_limit=60)
    running = {**scene.job("first"), "id": 900, "name": "x", "state": "RUNNING", "allocated_nodes": "n2", "cpus": 8}
    tres = {"cpu": 8, "mem": 800, "node": 1}
    running |= {"allocated_tres": tres, "start_time": scene.now_s, "time_limit": minutes, "reservation": None}
    scene.rows["jobs"].append(running)
    scene.with_each_node(state="IDLE")
    scene.node("n2").update(state="MIXED", allocated_cpus=8, allocated_memory=800)
    assert nodes_of(observe(scene)) == nodes


def test_job_that_fits_nowhere_waits_for_reserved_cores() -> None:
    scene = scene_with(cpu_ids_by_node={f"n{at}": "0-15" for at in (1, 2, 3, 4)})
    scene.job("first")["time_limit"] = 600
    scene.rows["reservations"][0].update(start_time=scene.now_s + 60)
    scene.with_each_node(state="IDLE")
    assert words(observe(scene).pending[0].job.ineligible) == "a future reservation leaves too little capacity (r)"


def test_starts_of_one_round_cannot_share_reserved_cores() -> None:
    """12 of 16 cores of n2 are reserved in half an hour: one long job of three cores fits beside them, not two."""
    scene, translator = scene_with(nodes="n2", cpu_ids_by_node={"n2": "0-11"}), SlurmTranslator()
    scene.rows["reservations"][0].update(start_time=scene.now_s + 1800, end_time=scene.now_s + 3600)
    scene.with_each_node(state="IDLE")
    translator.observe(scene.read())
    machine = translator.machine
    assert machine is not None
    amounts, on = (3, 100, 0), ((machine.names[1], 1),)
    long, short = (StartOrder(a_job(1, 1, amounts, walltime_s), on) for walltime_s in (3600, 1800))
    whole = StartOrder(a_job(1, 1, amounts, 3600, exclusive=True), on)
    told = "other starts leave too few resources for it outside reservation r"

    def kept(*starts: StartOrder, under_way: tuple[StartOrder, ...] = ()) -> list[StartOrder | str]:
        found = defer_reservation_conflicts(starts, under_way, translator.to_come, machine, scene.now_s)
        return [each.detail if isinstance(each, Outcome) else each for each in found]

    assert kept(short, long, short, long, short) == [short, long, short, told, short]
    assert kept(long, short, under_way=(long,)) == [told, short]
    assert kept(whole, long) == [told, long]


@pytest.mark.parametrize(
    ("facts", "job", "left"),
    [
        ({}, {}, True),
        ({"flags": []}, {}, False),
        ({"flags": None}, {}, True),
        ({"users": ["bob"]}, {}, False),
        ({"users": ["-bob"]}, {}, True),
        ({"users": ["-alice"]}, {}, False),
        ({"users": [], "accounts": ["lab"]}, {"account": "Lab"}, True),
        ({"users": [], "accounts": ["lab"]}, {"account": "other"}, False),
        ({"users": [], "accounts": ["lab"]}, {"account": "below"}, True),
        ({"users": [], "accounts": ["-lab"]}, {"account": "below"}, False),
        ({"users": [], "accounts": ["-lab"]}, {"account": "other"}, True),
        ({"users": ["alice"], "accounts": ["other"]}, {"account": "lab"}, False),
        ({"users": [], "groups": ["chem"]}, {}, True),
        ({"users": [], "groups": ["bio"]}, {}, False),
        ({"qos": ["high"]}, {"qos": "normal"}, False),
        ({"qos": ["-high"]}, {"qos": "normal"}, True),
        ({"allowed_partitions": ["short"]}, {}, False),
        ({"users": ["bob"]}, {"user_id": 0, "user_name": "root"}, True),
        ({"flags": ["MAGNETIC", "TIME_FLOAT"]}, {}, False),
        ({"start_time": 2_000_000_000, "end_time": 2_000_003_600}, {}, False),
        ({"start_time": 2_000_000_000, "end_time": 2_000_003_600, "flags": ["MAGNETIC", "FLEX"]}, {}, True),
        ({}, {"time_limit": 60}, True),
        ({}, {"time_limit": 61}, False),
        ({"flags": ["MAGNETIC", "FLEX"]}, {"time_limit": 61}, True),
        ({"nodes": "n1"}, {"ntasks": 2, "cpus": 2, "num_nodes": 2, "max_nodes": 2}, False),
        ({"nodes": "n[3-4]"}, {"partition": "short"}, True),
        ({"nodes": "n[1-2]"}, {"partition": "short"}, False),
        ({"cpu_ids_by_node": {"n1": "0-1"}, "nodes": "n1"}, {}, True),
        (
            {"cpu_ids_by_node": {"n1": "0-1"}, "nodes": "n1"},
            {"cpus": 4, "cpus_per_task": 4, "min_cpus_per_node": 4},
            False,
        ),
        ({"nodes": None}, {}, False),
    ],
)
def test_leaves_jobs_that_magnetic_reservation_may_take(facts: dict[str, Any], job: dict[str, Any], left: bool) -> None:
    """While Slurm could start them there, and where it is not known whether it could."""
    scene = scene_with(**{"users": ["alice"], "flags": ["MAGNETIC"], **facts})
    scene.job("first").update({"account": "lab", "qos": "normal", **job})
    scene.outside = {"alice": ["bio"]}
    seen = observe(scene, above={"below": "lab", "lab": "root", "other": "root"})
    reasons = ["may run in a magnetic reservation (r)"] * left
    assert ([words(each.reason) for each in seen.unmanaged], len(seen.pending)) == (reasons, not left)


def test_pinned_job_stays_despite_magnetic_reservation() -> None:
    scene = scene_with(users=["alice"], flags=["MAGNETIC"])
    scene.job("first")["required_nodes"] = "n1"
    seen = observe(scene, pinned=[scene.job("first")["id"]])
    assert (len(seen.pending), seen.unmanaged) == (1, ())


CLAIM = Lease("4be1c2d3", "00ff", 17, "login2:/var/lib/cpsched")


def reservation(comment: str | None, name: str = slurm_reservations.LEASE_RESERVATION_NAME) -> SlurmReservation:
    times = {"start_time": 2_100_000_000, "end_time": 2_100_000_060}
    return SlurmReservation(name=name, nodes="n2", **times, users=["cpsched"], comment=comment)


@pytest.mark.parametrize("where", ["login2:/var/lib/cpsched", "a:/with blank", 'b:/"&=%', "c:/\n\x1b[2J", "d:/ü"])
def test_written_lease_is_read_and_has_only_safe_characters(where: str) -> None:
    words = format_lease(dataclasses.replace(CLAIM, where=where))
    assert (words.isprintable(), set(words) & set(" \"'")) == (True, set())
    found = slurm_reservations.lease_from_reservations([reservation("x", "other"), reservation(words)])
    assert found is not None
    assert (found.bridge, found.run, found.beat, format_lease(found)) == ("4be1c2d3", "00ff", 17, words)


@pytest.mark.parametrize("changes", [{}, {"epoch": 1_795_917_612}, {"epoch": 30, "standby": "0a1b"}])
def test_lease_of_any_release_keeps_its_text(changes: dict[str, Any]) -> None:
    """A bridge replaces exactly the text that it has read, also that of a release without epochs, or of others."""
    lease = dataclasses.replace(CLAIM, **changes)
    words = format_lease(lease)
    assert ("epoch" in words, "standby" in words) == ("epoch" in changes, "standby" in changes)
    for text, expected in ((words, lease), ("words of others", None)):
        found = slurm_reservations.lease_from_reservations([reservation(text)])
        assert found is not None
        assert expected is None or found == expected
        assert format_lease(found) == text


@pytest.mark.parametrize("comment", [None, "", "maintenance", "bridge=1&run=2&beat=x&on=y", "bridge=1&run=2&beat=3"])
def test_unknown_reservation_text_is_lease_of_unknown_bridge(comment: str | None) -> None:
    found = slurm_reservations.lease_from_reservations([reservation(comment)])
    assert found is not None
    assert (found.bridge, slurm_reservations.UNKNOWN_OWNER in found.where) == ("", True)


@pytest.mark.parametrize("reservations", [[], [reservation("words", "other")]])
def test_no_lease_without_lease_reservation(reservations: list[SlurmReservation]) -> None:
    assert slurm_reservations.lease_from_reservations(reservations) is None


def test_lease_reservation_closes_no_node() -> None:
    read = Scene().read()
    lease = dataclasses.replace(reservation(format_lease(CLAIM)), start_time=read.now_s + 5)
    claimed = dataclasses.replace(read, reservations=[*read.reservations, lease])
    without, with_claim = SlurmTranslator().observe(read), SlurmTranslator().observe(claimed)
    assert (without.lease, with_claim.lease, with_claim.outages) == (None, CLAIM, without.outages)
    assert [each.job for each in with_claim.pending] == [each.job for each in without.pending]
