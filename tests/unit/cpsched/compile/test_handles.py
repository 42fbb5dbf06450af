"""Handles: Python and kernels see the same fields by the same names."""

import copy
import dataclasses
import gc
import pickle

import numpy as np
import pytest

from cpsched.compile.handles import Column, FixedColumn, Handle
from cpsched.compile.jit import inner, kernel, owned
from cpsched.kernels.state import Method
from cpsched.planning import site_of
from tests.builders import a_cluster, a_job, a_snapshot


class Shelf(Handle, grows=True):
    used: int
    books: Column


class Room(Handle):
    name: str
    chairs: int
    shelf: Shelf
    sizes: FixedColumn
    tables: int


def a_room() -> Room:
    return Room(name="study", chairs=2, shelf=Shelf(1, np.array([7, 0])), sizes=np.array([3, 4]), tables=1)


@inner
def put(shelf: Shelf, book: int) -> None:
    if shelf.used == len(shelf.books):
        longer = np.zeros(2 * shelf.used, np.int64)
        longer[: shelf.used] = shelf.books
        shelf.books = longer
    shelf.books[shelf.used] = book
    shelf.used += 1


@kernel
def furnish(room: Room, books: int) -> int:
    for book in range(books):
        put(room.shelf, book)
    room.chairs += 1
    return room.tables + room.sizes[1]


@kernel
def on_shelf(shelf: Shelf) -> np.ndarray:
    return owned(shelf, "books")[: shelf.used]


def test_both_sides_read_and_write_the_same_integers():
    room = a_room()
    room.tables = 5
    assert furnish(room, 0) == 9
    assert (room.chairs, room.tables, room.name) == (3, 5, "study")


def test_what_a_kernel_lets_grow_is_seen_by_the_next_and_outlives_its_replacement():
    room = a_room()
    furnish(room, 3)
    before = on_shelf(room.shelf)
    furnish(room, 100)
    gc.collect()
    assert before.tolist() == [7, 0, 1, 2]
    assert on_shelf(room.shelf).tolist() == [7, 0, 1, 2, *range(100)]
    assert room.shelf.used == 104


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda handle: pickle.loads(pickle.dumps(handle))])
@pytest.mark.parametrize("built", [False, True])
def test_a_copy_stands_on_its_own(copied, built):
    method = Method(order=1, backfill=0, reservations=2, allocation=0, whole=1)
    if built:
        method.order = 3
    other = copied(method)
    method.reservations = 9
    assert (other.order, other.reservations, other.whole) == (3 if built else 1, 2, 1)


@pytest.mark.parametrize("built", [False, True])
def test_python_replaces_arrays_before_and_after_kernels_saw_the_handle(built):
    room = a_room()
    if built:
        furnish(room, 0)
    room.replace(sizes=np.array([1, 10, 100]), chairs=8)
    assert furnish(room, 0) == 11
    assert room.sizes.tolist() == [1, 10, 100]
    assert room.chairs == 9


@pytest.mark.parametrize(
    "sizes", [np.zeros(2), np.zeros((2, 2), np.int64), np.zeros(4, np.int64)[::2], np.zeros(2, np.int32), [1, 2]]
)
def test_arrays_that_a_kernel_would_misread_are_refused(sizes):
    room = a_room()
    room.replace(sizes=sizes)
    with pytest.raises(TypeError, match=r"Room.sizes: must be a contiguous int64 array of 1 axes"):
        furnish(room, 0)


def test_a_column_that_kernels_write_may_not_be_read_only():
    books = np.zeros(2, np.int64)
    books.setflags(write=False)
    with pytest.raises(TypeError, match=r"Shelf\.books"):
        on_shelf(Shelf(0, books))


def test_every_field_is_given_once():
    with pytest.raises(TypeError, match="tables missing or unknown"):
        Room(name="study", chairs=2, shelf=Shelf(0, np.zeros(1, np.int64)), sizes=np.zeros(1, np.int64))


def test_a_table_seen_read_only_is_the_same_to_kernels():
    snapshot = a_snapshot(a_cluster(), [a_job(1)])
    fixed = snapshot.table.read_only()
    with pytest.raises(ValueError, match="read-only"):
        fixed.units[0] = 3
    assert fixed._address == snapshot.table._address


def test_a_changed_copy_of_a_snapshot_does_not_carry_the_state_of_the_first():
    made = a_snapshot(a_cluster(), [a_job(1), a_job(2)])
    snapshot = dataclasses.replace(made, carry=site_of(made))
    assert site_of(snapshot) is snapshot.carried
    assert dataclasses.replace(snapshot, queue=snapshot.queue[:1]).carried is None
