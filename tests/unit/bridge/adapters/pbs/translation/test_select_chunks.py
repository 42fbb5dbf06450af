from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cpsched.feasibility import units_by_node
from cpsched.model import NodeSetPart
from cpsched_bridge.adapters.pbs.translation import select_chunks
from cpsched_bridge.adapters.pbs.translation.select_chunks import build_chunk_request, parse_chunks, parse_place_text
from cpsched_bridge.adapters.pbs.translation.vnodes import VnodeTable
from cpsched_bridge.adapters.shared.not_modelled import JobNotModelled

BIG = {"ncpus": "8", "mem": "8gb"}


def machine(*vnodes: dict[str, object], hosts: tuple[str, ...] | None = None) -> VnodeTable:
    """Vnodes v0, v1 ..., each on a host of its own unless `hosts` says otherwise."""
    records = {}
    for row, each in enumerate(vnodes or (BIG, BIG, BIG)):
        has = {"host": hosts[row] if hosts else f"h{row}"} | {n: v for n, v in each.items() if n != "sharing"}
        records[f"v{row}"] = {"resources_available": has, "sharing": each.get("sharing", "default_shared")}
    return VnodeTable.from_records(records, {})


def ask(
    select: str,
    place: str = "free",
    of: VnodeTable | None = None,
    allowed: list[bool] | None = None,
    taken: dict[int, tuple[int, int]] | None = None,
):
    there = of or machine()
    free = there.capacity.copy()
    for row, amounts in (taken or {}).items():
        free[row] -= amounts
    return build_chunk_request(select, place, there, np.array(allowed or [True] * len(there.names)), free)


def racks(*values: str) -> VnodeTable:
    """A vnode for each value; "" has none."""
    return machine(*({**BIG, **({"rack": value} if value else {})} for value in values))


def on(found, of: VnodeTable) -> str:
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
def test_a_group_is_the_smallest_that_has_room_and_else_the_largest(taken, rows):
    of = racks("a", "a", "", "b", "b", "b", "c")
    found = ask("2:ncpus=4", "free:group=rack", of, taken=taken)
    assert on(found, of) == "6", "one vnode holds both"
    scattered = ask("2:ncpus=4", "scatter:group=rack", of, taken=taken)
    assert on(scattered, of) == rows
    assert (sizes(scattered), sizes(found)) == ([2, 3], [1, 2, 3])


def test_a_job_that_wants_vnodes_alone_gets_a_group_in_which_enough_are_empty():
    of = racks("a", "a", "b", "b", "b")
    assert on(ask("2:ncpus=1", "scatter:group=rack", of, taken={0: (1, 0)}), of) == "01"
    assert on(ask("2:ncpus=1", "scatter:excl:group=rack", of, taken={0: (1, 0)}), of) == "234"


def test_a_job_that_no_group_holds_is_left():
    of = racks("a", "a", "b", "")
    for select in ("3:ncpus=8", "5:ncpus=4"):
        with pytest.raises(JobNotModelled, match="place=group=rack: no group of vnodes holds it"):
            ask(select, "free:group=rack", of)
    with pytest.raises(JobNotModelled, match="group=row: no group"):
        ask("2:ncpus=1", "free:group=row", of)
    with pytest.raises(JobNotModelled, match="group=ncpus: no group"):
        ask("2:ncpus=1", "free:group=ncpus", of)
    assert ask("1:ncpus=1", "free:group=row", of).choice is None, "one chunk is in one group wherever it is"


def test_a_vnode_may_be_in_several_groups_and_outside_the_queue_in_none():
    of = racks("a,b", "a", "b,c", "c")
    assert on(ask("2:ncpus=8", "free:group=rack", of, taken={1: ALL}), of) == "02"
    found = ask("2:ncpus=8", "free:group=rack", of, allowed=[True, False, True, False])
    assert (on(found, of), sizes(found)) == ("02", [2])
    pairs = machine(hosts=("h0", "h1", "h1"))
    assert on(ask("2:ncpus=8", "free:group=host", pairs), pairs) == "12"


def test_a_start_may_be_in_another_group_than_the_one_that_has_room_by_now():
    of = racks("a", "a", "b", "b")
    found = ask("2:ncpus=8", "free:group=rack", of)
    other = ask("2:ncpus=8", "free:group=rack", of, taken={0: ALL})
    assert found.request.node_set != other.request.node_set
    assert found.matches(other.request, of)
    assert not found.matches(ask("2:ncpus=7", "free:group=rack", of).request, of)
    assert not found.matches(ask("2:ncpus=8", "free", of).request, of)
    part = of.intern_node_set(np.array([False, False, True, False]), NodeSetPart("resource", "a part of a group"))
    assert not found.matches(replace(other.request, node_set=part), of)
    alone = ask("2:ncpus=8", "free", of)
    assert alone.matches(alone.request, of)
    assert not alone.matches(found.request, of)


def test_a_group_that_could_not_hold_the_job_is_no_other_place_for_it():
    of = racks("a", "a", "b")
    found = ask("2:ncpus=8", "free:group=rack", of)
    assert not found.matches(
        replace(
            found.request, node_set=of.intern_node_set(np.array([False, False, True]), NodeSetPart("resource", "b"))
        ),
        of,
    )


@pytest.mark.parametrize("resource", ["host", "vnode", "rack"])
def test_a_job_costs_two_looks_at_the_vnodes_however_many_groups_they_make(monkeypatch, resource):
    """Any user may request `group=host`: checking each group, a thousand such jobs took minutes of every cycle."""
    of = racks(*map(str, range(200)))
    looks = []
    monkeypatch.setattr(select_chunks, "units_by_node", lambda *each: looks.append(each) or units_by_node(*each))
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


def test_a_group_has_only_those_vnodes_that_the_job_may_use():
    of = racks("a", "a", "a", "b", "b")
    found = ask("2:ncpus=8", "free:group=rack", of, allowed=[False, True, True, True, False])
    assert on(found, of) == "12"
    assert found.matches(ask("2:ncpus=8", "free:group=rack", of, allowed=[False, True, True, True, False]).request, of)
    assert not found.matches(ask("2:ncpus=8", "free:group=rack", of).request, of)


def test_a_job_with_an_unknown_place_is_left():
    with pytest.raises(JobNotModelled, match="place=nearby"):
        parse_place_text("nearby")


def test_equal_chunks_beside_each_other_are_counted_together():
    found = parse_chunks("2:ncpus=1:mpiprocs=4+ncpus=1+ncpus=2", machine())
    assert [(each.count, each.select_text) for each in found] == [(3, "ncpus=1"), (1, "ncpus=2")]
    assert [each.select_text for each in parse_chunks("1", machine())] == ["ncpus=1"], (
        "one processor, where nothing is said"
    )


@pytest.mark.parametrize(
    "select", ["0:ncpus=1", "1:ncpus", "1:ncpus=1:ncpus=2", "1:ncpus=$(id)", "1:n cpus=1", f"{(1 << 20) + 1}:ncpus=1"]
)
def test_odd_words_are_errors(select):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_chunks(select, machine())


def test_units_are_chunks_and_amounts_are_those_of_one():
    found = ask("3:ncpus=2:mem=1gb")
    assert (found.request.units, found.request.per_unit, found.request.distinct) == (3, (2, 1024), False)
    assert found.format_exec_vnode((("v1", 2), ("v2", 1))) == "+".join(
        f"({v}:ncpus=2:mem=1gb)" for v in ("v1", "v1", "v2")
    )


def test_an_amount_that_is_no_whole_mebibyte_is_rounded_up():
    assert ask("1:ncpus=1:mem=1025kb").request.per_unit == (1, 2)


@pytest.mark.parametrize(("place", "distinct"), [("free", False), ("scatter", True), ("vscatter", True)])
def test_scattered_chunks_are_on_vnodes_of_their_own(place, distinct):
    assert ask("2:ncpus=1", place).request.distinct is distinct


def test_packed_chunks_and_chunks_of_several_kinds_are_one_unit():
    found = ask("2:ncpus=2+1:ncpus=3:mem=1gb")
    assert (found.request.units, found.request.per_unit) == (1, (7, 1024))
    assert found.format_exec_vnode((("v0", 1),)) == "(v0:ncpus=2)+(v0:ncpus=2)+(v0:ncpus=3:mem=1gb)"
    assert ask("8:ncpus=1", "pack").request.per_unit == (8, 0)


@pytest.mark.parametrize(
    ("select", "place", "why"),
    [
        ("9:ncpus=1", "pack", "place=pack that together fit onto no vnode"),
        ("1:ncpus=5+1:ncpus=4", "free", "chunks of several kinds that together fit onto no vnode"),
        ("1:ncpus=1+1:ncpus=2", "vscatter", "chunks of several kinds with place=vscatter"),
        ("1:ncpus=9", "free", "a chunk that fits onto no vnode"),
        ("2:ncpus=8", "group=host", "place=group=host: no group of vnodes holds it"),
        ("1:ncpus=1:host=elsewhere", "free", "no vnode has host=elsewhere"),
        ("1:ncpus=1:host=h0+1:ncpus=1:host=h1", "free", "chunks that are to be on vnodes of several kinds"),
        ("1:ncpus=1:speed=3", "free", "asks for speed, which no vnode has"),
    ],
)
def test_what_the_model_cannot_say_is_told(select, place, why):
    with pytest.raises(JobNotModelled, match=f"^{why}$"):
        ask(select, place)


def test_where_hosts_have_several_vnodes_a_host_of_ones_own_cannot_be_said():
    shared = machine(BIG, BIG, BIG, hosts=("h", "h", "i"))
    with pytest.raises(JobNotModelled, match=r"^place=scatter where hosts have several vnodes$"):
        ask("2:ncpus=1", "scatter", shared)
    assert ask("2:ncpus=1", "vscatter", shared).request.distinct
    with pytest.raises(JobNotModelled, match=r"^whole hosts, which have several vnodes$"):
        ask("1:ncpus=1", "exclhost", shared)


def test_a_vnode_that_has_nothing_is_no_vnode_of_its_host():
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
def test_job_and_vnode_say_together_who_has_it_alone(place, sharing, alone):
    assert ask("1:ncpus=1", place, machine(BIG | {"sharing": sharing})).request.exclusive is alone


def test_vnodes_that_differ_in_that_are_told_unless_the_job_may_run_on_one_kind_alone():
    mixed = machine(BIG | {"sharing": "force_excl"}, BIG)
    with pytest.raises(JobNotModelled, match=r"^vnodes that differ in whether they are shared$"):
        ask("1:ncpus=1", of=mixed)
    assert ask("1:ncpus=1", of=mixed, allowed=[True, False]).request.exclusive
    assert not ask("1:ncpus=1", of=mixed, allowed=[False, True]).request.exclusive


def test_properties_choose_vnodes():
    there = machine(BIG | {"rack": "a"}, BIG | {"rack": "b", "fast": "yes"}, BIG | {"rack": "a", "fast": "yes"})
    found = ask("1:ncpus=1:rack=a", of=there)
    assert there.rows[found.request.node_set].tolist() == [True, False, True]
    assert there.rows[ask("1:ncpus=1", of=there, allowed=[True, True, False]).request.node_set].tolist() == [
        True,
        True,
        False,
    ]
    both = ask("1:ncpus=1:rack=a:fast=yes", of=there)
    assert there.rows[both.request.node_set].tolist() == [False, False, True]
