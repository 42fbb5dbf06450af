from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cpsched.feasibility import units_fitting_by_row
from cpsched.model import NodeSetCondition
from cpsched_bridge.adapters.pbs.pbs_objects import PbsCustomResource, PbsQueue, PbsVnode, parse_vnode
from cpsched_bridge.adapters.pbs.translation import pbs_chunk_requests
from cpsched_bridge.adapters.pbs.translation.pbs_chunk_requests import (
    build_chunk_request,
    parse_chunks,
)
from cpsched_bridge.adapters.pbs.translation.vnodes import ConfiguredVnodeTable, list_limited_vnodes
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled

BIG = {"ncpus": "8", "mem": "8gb"}


def machine(*vnodes: dict[str, object], hosts: tuple[str, ...] | None = None) -> ConfiguredVnodeTable:
    """Vnodes v0, v1 ..., each on a host of its own unless `hosts` says otherwise."""
    records = {}
    for row, each in enumerate(vnodes or (BIG, BIG, BIG)):
        has = {"host": hosts[row] if hosts else f"h{row}"} | {n: v for n, v in each.items() if n != "sharing"}
        records[f"v{row}"] = PbsVnode(available=has, sharing=each.get("sharing", "default_shared"))
    return ConfiguredVnodeTable.from_records(records, {})


def ask(
    select: str,
    place: str = "free",
    of: ConfiguredVnodeTable | None = None,
    allowed: list[bool] | None = None,
    taken: dict[int, tuple[int, int]] | None = None,
):
    there = of or machine()
    free = there.capacity.copy()
    for row, amounts in (taken or {}).items():
        free[row] -= amounts
    return build_chunk_request(select, place, there, np.array(allowed or [True] * len(there.names)), free)


def records(*more: dict[str, object], **available: str) -> dict[str, PbsVnode]:
    """Vnodes v0, v1 ..., each with 8 processors and more attributes. `available` are more resources of v0."""
    amounts = [{**BIG, "host": f"h{row}", **({} if row else available)} for row in range(len(more))]
    return {f"v{row}": parse_vnode({"resources_available": amounts[row], **each}) for row, each in enumerate(more)}


@pytest.mark.parametrize("limit", ["max_running", "max_user_run", "max_group_run"])
def test_no_job_is_placed_on_vnode_with_limit(limit):
    """The limit is not modelled, and `qrun` ignores it."""
    vnodes = records({limit: "1"}, {})
    of = ConfiguredVnodeTable.from_records(vnodes, {})
    assert of.mask_vnodes_of_queue(PbsQueue("workq")).tolist() == [False, True]
    assert [str(each) for each in list_limited_vnodes(vnodes, of)] == [
        f"node v0: {limit}=1: this version has no rule for it"
    ]


def test_several_chunks_avoid_vnodes_for_single_host_jobs():
    of = ConfiguredVnodeTable.from_records(records({"no_multinode_jobs": "True"}, {}, {}), {})
    assert [on(ask(select, of=of), of) for select in ("2:ncpus=8", "1:ncpus=8")] == ["12", "012"]


def test_unset_boolean_is_false():
    of = ConfiguredVnodeTable.from_records(records({}, {}, big="True"), {"big": PbsCustomResource("boolean", "h")})
    assert [on(ask(f"1:ncpus=1:big={big}", of=of), of) for big in ("False", "T")] == ["1", "0"]


@pytest.mark.parametrize("text", [".05", "0.05", "1."])
def test_reads_fractions_without_leading_or_trailing_digit(text):
    of = ConfiguredVnodeTable.from_records(
        records({}, share="2"),
        {"share": PbsCustomResource("float", "nh")},
    )
    assert ask(f"1:ncpus=1:share={text}", of=of).request.per_unit == (1, 0, 1)


@pytest.mark.parametrize(
    ("select", "place", "allowed", "why"),
    [
        ("1:ncpus=0", "free", None, "requests no amount of any resource"),
        ("1:ncpus=0+2:ncpus=0:mem=0", "free", None, "requests no amount of any resource"),
        ("4:ncpus=8", "free", None, "requests more chunks than fit on its vnodes"),
        ("3:ncpus=8", "free", [True, True, False], "requests more chunks than fit on its vnodes"),
        ("9:ncpus=1", "pack", None, "requests place=pack, but no single vnode can hold all chunks"),
        ("1:ncpus=5+1:ncpus=4", "free", None, "requests different chunks, but no single vnode can hold all chunks"),
        ("1:ncpus=1+1:ncpus=2", "vscatter", None, "requests different chunks with place=vscatter"),
        ("1:ncpus=9", "free", None, "requests a chunk that does not fit on any vnode"),
        ("2:ncpus=8", "group=host", None, "place=group=host: no group of vnodes can hold the job"),
        ("1:ncpus=1:host=elsewhere", "free", None, "no vnode has host=elsewhere"),
        ("1:ncpus=1:host=h0+1:ncpus=1:host=h1", "free", None, "requests chunks on different kinds of vnodes"),
        ("1:ncpus=1:speed=3", "free", None, "requests speed, which no vnode has"),
        ("1:ncpus=1", "nearby", None, "place=nearby"),
    ],
)
def test_rejects_unsupported_request(select, place, allowed, why):
    with pytest.raises(JobNotModelled, match=f"^{why}$"):
        ask(select, place, allowed=allowed)


def racks(*values: str) -> ConfiguredVnodeTable:
    """A vnode for each value; "" has none."""
    return machine(*({**BIG, **({"rack": value} if value else {})} for value in values))


def on(found, of: ConfiguredVnodeTable) -> str:
    """The rows of a request's vnodes."""
    return "".join(map(str, np.flatnonzero(of.rows[found.request.node_set])))


def sizes(found) -> list[int]:
    """How many vnodes each group has in which the job may run."""
    return [int(found.choice.vnode_mask(group).sum()) for group in np.flatnonzero(found.choice.holds)]


ALL = (8, 8192)


@pytest.mark.parametrize(
    ("taken", "rows"),
    [
        ({}, "01"),
        ({0: ALL}, "345"),
        ({0: (2, 0)}, "01"),
        ({0: (5, 0), 1: (5, 0)}, "345"),
        ({0: ALL, 3: ALL}, "345"),
        ({0: ALL, 3: ALL, 4: (6, 0)}, "345"),
    ],
)
def test_chooses_smallest_group_with_capacity_or_largest(taken, rows):
    of = racks("a", "a", "", "b", "b", "b", "c")
    found = ask("2:ncpus=4", "free:group=rack", of, taken=taken)
    assert on(found, of) == "6", "one vnode holds both"
    scattered = ask("2:ncpus=4", "scatter:group=rack", of, taken=taken)
    assert on(scattered, of) == rows
    assert (sizes(scattered), sizes(found)) == ([2, 3], [1, 2, 3])


def test_exclusive_job_gets_group_with_enough_empty_vnodes():
    of = racks("a", "a", "b", "b", "b")
    places = "scatter:group=rack", "scatter:excl:group=rack"
    assert [on(ask("2:ncpus=1", place, of, taken={0: (1, 0)}), of) for place in places] == ["01", "234"]


@pytest.mark.parametrize(
    ("select", "group"), [("3:ncpus=8", "rack"), ("5:ncpus=4", "rack"), ("2:ncpus=1", "row"), ("2:ncpus=1", "ncpus")]
)
def test_leaves_job_that_fits_no_group(select, group):
    of = racks("a", "a", "b", "")
    with pytest.raises(JobNotModelled, match=f"place=group={group}: no group of vnodes can hold the job"):
        ask(select, f"free:group={group}", of)
    assert ask("1:ncpus=1", "free:group=row", of).choice is None, "one chunk is in one group wherever it is"


def test_vnode_may_belong_to_several_groups_or_none():
    of = racks("a,b", "a", "b,c", "c")
    assert on(ask("2:ncpus=8", "free:group=rack", of, taken={1: ALL}), of) == "02"
    found = ask("2:ncpus=8", "free:group=rack", of, allowed=[True, False, True, False])
    assert (on(found, of), sizes(found)) == ("02", [2])
    pairs = machine(hosts=("h0", "h1", "h1"))
    assert on(ask("2:ncpus=8", "free:group=host", pairs), pairs) == "12"


def test_start_may_use_another_group_with_capacity():
    of = racks("a", "a", "b", "b", "c")
    found = ask("2:ncpus=8", "free:group=rack", of)
    other = ask("2:ncpus=8", "free:group=rack", of, taken={0: ALL}).request
    alone = ask("2:ncpus=8", "free", of)
    assert found.request.node_set != other.node_set
    assert found.matches_request(other, of)
    assert alone.matches_request(alone.request, of)
    assert not alone.matches_request(found.request, of)

    fewer = ask("2:ncpus=7", "free:group=rack", of).request
    for mask in ([False, False, True, False, False], [False, False, False, False, True]):  # a part, a small group
        part = of.intern_node_set(np.array(mask), NodeSetCondition("resource", f"{mask}"))
        assert not found.matches_request(replace(other, node_set=part), of)
    assert not any(found.matches_request(request, of) for request in (fewer, alone.request))


def test_group_has_only_vnodes_allowed_for_job():
    of, allowed = racks("a", "a", "a", "b", "b"), [False, True, True, True, False]
    found = ask("2:ncpus=8", "free:group=rack", of, allowed=allowed)
    assert on(found, of) == "12"
    again, every = (ask("2:ncpus=8", "free:group=rack", of, allowed=mask).request for mask in (allowed, None))
    assert (found.matches_request(again, of), found.matches_request(every, of)) == (True, False)


@pytest.mark.parametrize("resource", ["host", "vnode", "rack"])
def test_many_groups_cost_two_vnode_scans_per_job(monkeypatch, resource):
    """Any user may request `group=host`: checking each group, a thousand such jobs took minutes of every cycle."""
    of = racks(*map(str, range(200)))
    looks = []
    monkeypatch.setattr(
        pbs_chunk_requests, "units_fitting_by_row", lambda *each: looks.append(each) or units_fitting_by_row(*each)
    )
    monkeypatch.setattr(of, "properties", Counted(of.properties))
    for units in range(2, 9):
        assert on(ask(f"{units}:ncpus=1", f"free:group={resource}", of), of) == "0"
        assert on(ask("1:ncpus=1:rack=0", "free", of), of) == "0"
    assert (len(looks), len(of.rows)) == (2 * 7, 2), "of node sets: all vnodes, and one group"
    assert of.properties.read <= 2 * len(of.names)


class Counted(dict):
    """Counts how often a vnode's properties are looked up."""

    read = 0

    def __getitem__(self, key):
        self.read += 1
        return super().__getitem__(key)


def test_merges_adjacent_equal_chunks():
    found = parse_chunks("2:ncpus=1:mpiprocs=4+ncpus=1+ncpus=2", machine())
    assert [(each.count, each.amounts_text) for each in found] == [(3, "ncpus=1"), (1, "ncpus=2")]
    assert [each.amounts_text for each in parse_chunks("1", machine())] == ["ncpus=1"], (
        "one processor, where nothing is said"
    )


@pytest.mark.parametrize(
    "select", ["0:ncpus=1", "1:ncpus", "1:ncpus=1:ncpus=2", "1:ncpus=$(id)", "1:n cpus=1", f"{(1 << 20) + 1}:ncpus=1"]
)
def test_rejects_invalid_select(select):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_chunks(select, machine())


@pytest.mark.parametrize(
    ("select", "place", "expected"),
    [
        ("3:ncpus=2:mem=1gb", "free", (3, (2, 1024), False)),
        ("1:ncpus=1:mem=1025kb", "free", (1, (1, 2), False)),
        # Scattered chunks need distinct vnodes. Packed or mixed chunks are one unit.
        ("2:ncpus=1", "free", (2, (1, 0), False)),
        ("2:ncpus=1", "scatter", (2, (1, 0), True)),
        ("2:ncpus=1", "vscatter", (2, (1, 0), True)),
        ("2:ncpus=2+1:ncpus=3:mem=1gb", "free", (1, (7, 1024), False)),
        ("8:ncpus=1", "pack", (1, (8, 0), False)),
    ],
)
def test_units_are_chunks_with_amounts_of_one(select, place, expected):
    request = ask(select, place).request
    assert (request.units, request.per_unit, request.distinct) == expected


@pytest.mark.parametrize(
    ("select", "placement", "expected"),
    [
        ("3:ncpus=2:mem=1gb", (("v1", 2), ("v2", 1)),
         "(v1:ncpus=2:mem=1gb)+(v1:ncpus=2:mem=1gb)+(v2:ncpus=2:mem=1gb)"),
        ("2:ncpus=2+1:ncpus=3:mem=1gb", (("v0", 1),), "(v0:ncpus=2)+(v0:ncpus=2)+(v0:ncpus=3:mem=1gb)"),
    ],
)  # fmt: skip
def test_start_names_vnode_of_each_chunk(select, placement, expected):
    assert ask(select).format_exec_vnode(placement) == expected


def test_rejects_whole_host_with_several_vnodes():
    shared = machine(BIG, BIG, BIG, hosts=("h", "h", "i"))
    for select, place, why in (
        ("2:ncpus=1", "scatter", "requests place=scatter, but hosts have several vnodes"),
        ("1:ncpus=1", "exclhost", "requests whole hosts, which have several vnodes"),
    ):
        with pytest.raises(JobNotModelled, match=f"^{why}$"):
            ask(select, place, shared)
    assert ask("2:ncpus=1", "vscatter", shared).request.distinct


def test_vnode_without_resources_does_not_count_for_its_host():
    natural = machine(BIG, {"ncpus": "0", "mem": "0kb"}, hosts=("h", "h"))
    assert ask("1:ncpus=1", "exclhost", natural).request.exclusive


@pytest.mark.parametrize(
    ("place", "sharing", "alone"),
    [
        ("free", "default_shared", False),
        ("free", "default_excl", True),
        ("excl", "default_shared", True),
        ("shared", "default_excl", False),
        ("shared", "force_excl", True),
        ("excl", "ignore_excl", False),
        ("exclhost", "default_shared", True),
        ("free", "force_exclhost", True),
    ],
)
def test_place_and_vnode_sharing_decide_exclusive_use(place, sharing, alone):
    assert ask("1:ncpus=1", place, machine(BIG | {"sharing": sharing})).request.exclusive is alone


def test_rejects_mixed_vnode_sharing_among_allowed_vnodes():
    mixed = machine(BIG | {"sharing": "force_excl"}, BIG)
    with pytest.raises(JobNotModelled, match=r"^may use vnodes with different sharing$"):
        ask("1:ncpus=1", of=mixed)
    alone = [ask("1:ncpus=1", of=mixed, allowed=mask).request.exclusive for mask in ([True, False], [False, True])]
    assert alone == [True, False]


def test_custom_resources_select_vnodes():
    there = machine(BIG | {"rack": "a"}, BIG | {"rack": "b", "fast": "yes"}, BIG | {"rack": "a", "fast": "yes"})
    requests = ("1:ncpus=1:rack=a", None), ("1:ncpus=1", [True, True, False]), ("1:ncpus=1:rack=a:fast=yes", None)
    assert [on(ask(select, of=there, allowed=allowed), there) for select, allowed in requests] == ["02", "01", "2"]
