"""Shared structs: Python and kernels access the same fields by the same names."""

import copy
import dataclasses
import gc
import pickle
import struct
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from cpsched.jit.decorators import kernel, owned, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, FixedFlags, Flags, Matrix, Reals, SharedStruct
from cpsched.kernels.scheduling_state import ListSchedulerParameters, grow_columns
from cpsched.planning import get_scheduling_state
from tests.builders import a_cluster, a_job, a_snapshot


class Shelf(SharedStruct, grows=True):
    used: int
    books: Column


class Room(SharedStruct):
    name: str
    chairs: int
    shelf: Shelf
    sizes: FixedColumn
    tables: int


def a_room() -> Room:
    return Room(name="study", chairs=2, shelf=Shelf(1, np.array([7, 0])), sizes=np.array([3, 4]), tables=1)


@subroutine
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


class Pair(SharedStruct, grows=True):
    count: int
    first: Column
    beside: Column
    second: Column


@kernel
def lengths(pair: Pair, used: int, room: int) -> tuple[int, int, int, int, int]:
    grow_columns(pair, "first second", used, room)
    return len(pair.first), len(pair.beside), len(pair.second), pair.first[1], pair.second[1]


@kernel
def on_shelf(shelf: Shelf) -> np.ndarray:
    return owned(shelf, "books")[: shelf.used]


class Every(SharedStruct):
    share: float
    rows: Matrix
    open: Flags
    count: int
    allowed: FixedFlags
    shelf: Shelf
    weights: Reals
    slots: FixedColumn


@kernel
def told(every: Every) -> tuple[int, float, int, int, int, int, float, int]:
    rows, allowed = every.rows, every.allowed
    return (
        every.count, every.share, rows[1, 2] + 100 * rows.shape[0] + 10 * rows.shape[1], int(every.open[1]),
        int(allowed[2, 0]) + 10 * allowed.shape[0], every.shelf.books[0], every.weights[1], every.slots[0],
    )  # fmt: skip


@kernel
def put_in_front(shelf: Shelf, books: Column) -> int:
    shelf.books = books
    return shelf.books[0]


def test_kernel_reads_fields_of_each_kind():
    every = Every(
        share=0.25,
        rows=np.arange(6).reshape(2, 3),
        open=np.array([False, True]),
        count=np.int64(-7),
        allowed=np.array([[False], [False], [True]]),
        shelf=Shelf(1, np.array([9])),
        weights=np.array([0.5, 1.5]),
        slots=np.array([11]),
    )
    assert told(every) == (-7, 0.25, 235, 1, 31, 9, 1.5, 11)
    every.set_fields(share=2.5, count=3, rows=np.arange(20).reshape(4, 5), shelf=Shelf(1, np.array([8])))
    assert told(every) == (3, 2.5, 457, 1, 31, 8, 1.5, 11)


def test_rejects_number_too_large_for_kernel():
    with pytest.raises(struct.error):
        on_shelf(Shelf(1 << 63, np.array([7])))


def test_arrays_are_freed_with_handle_or_on_replacement():
    first, second, third = (np.array([at]) for at in range(3))
    gone = [weakref.ref(array) for array in (first, second, third)]
    shelf = Shelf(1, first)
    assert on_shelf(shelf).tolist() == [0]
    del first
    gc.collect()
    assert on_shelf(shelf).tolist() == [0], "kernels hold it"
    shelf.set_fields(books=second)
    del second
    gc.collect()
    assert [ref() is None for ref in gone] == [True, False, False]
    assert put_in_front(shelf, third) == 2
    assert [ref() is None for ref in gone] == [True, True, False]
    del third
    assert on_shelf(shelf).tolist() == [2]
    del shelf
    gc.collect()
    assert [ref() is None for ref in gone] == [True, True, True]


def test_kernel_arrays_are_freed_with_handle():
    from numba.core.runtime import _nrt_python as runtime

    def held() -> int:
        return runtime.memsys_get_stats_mi_alloc() - runtime.memsys_get_stats_mi_free()

    counted = runtime.memsys_stats_enabled()
    runtime.memsys_enable_stats()
    room = a_room()
    furnish(room, 0)
    before = held()
    for _ in range(20):
        room = a_room()
        furnish(room, 100)
    assert held() == before
    if not counted:
        runtime.memsys_disable_stats()


def test_python_and_kernel_share_integers():
    room = a_room()
    room.tables = 5
    assert furnish(room, 0) == 9
    assert (room.chairs, room.tables, room.name) == (3, 5, "study")


def test_grown_column_is_visible_and_survives_replacement():
    room = a_room()
    furnish(room, 3)
    before = on_shelf(room.shelf)
    furnish(room, 100)
    gc.collect()
    assert (before.tolist(), room.shelf.used) == ([7, 0, 1, 2], 104)
    assert on_shelf(room.shelf).tolist() == [7, 0, 1, 2, *range(100)]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda handle: pickle.loads(pickle.dumps(handle))])
@pytest.mark.parametrize("built", [False, True])
def test_copy_is_independent(copied, built):
    method = ListSchedulerParameters(order=1, backfill=0, reservations=2, allocation=0, whole=1)
    if built:
        method.order = 3
    other = copied(method)
    method.reservations = 9
    assert (other.order, other.reservations, other.whole) == (3 if built else 1, 2, 1)


@pytest.mark.parametrize("lengthened", [lengths, lengths.py_func])
@pytest.mark.parametrize(("room", "first", "second"), [(2, 2, 3), (3, 4, 3), (50, 50, 50)])
def test_short_columns_at_least_double_and_keep_contents(lengthened, room, first, second):
    pair = Pair(0, np.array([1, 2]), np.array([3, 4]), np.array([5, 6, 7]))
    if lengthened is not lengths:
        pair = SimpleNamespace(first=np.array([1, 2]), beside=np.array([3, 4]), second=np.array([5, 6, 7]))
    assert lengthened(pair, 2, room) == (first, 2, second, 2, 6)


@pytest.mark.parametrize("built", [False, True])
def test_python_may_replace_arrays_at_any_time(built):
    room = a_room()
    if built:
        furnish(room, 0)
    room.set_fields(sizes=np.array([1, 10, 100]), chairs=8)
    assert furnish(room, 0) == 11
    assert (room.sizes.tolist(), room.chairs) == ([1, 10, 100], 9)


@pytest.mark.parametrize(
    "sizes", [np.zeros(2), np.zeros((2, 2), np.int64), np.zeros(4, np.int64)[::2], np.zeros(2, np.int32), [1, 2]]
)
def test_rejects_incompatible_arrays(sizes):
    room = a_room()
    room.set_fields(sizes=sizes)
    with pytest.raises(TypeError, match=r"Room.sizes: must be a contiguous int64 array with 1 axes"):
        furnish(room, 0)


def test_rejects_readonly_column_that_kernel_writes():
    books = np.zeros(2, np.int64)
    books.setflags(write=False)
    with pytest.raises(TypeError, match=r"Shelf\.books"):
        on_shelf(Shelf(0, books))


def test_each_field_is_required_once():
    with pytest.raises(TypeError, match="tables missing or unknown"):
        Room(name="study", chairs=2, shelf=Shelf(0, np.zeros(1, np.int64)), sizes=np.zeros(1, np.int64))


def test_readonly_view_of_table_shares_memory():
    snapshot = a_snapshot(a_cluster(), [a_job(1)])
    fixed = snapshot.table.read_only()
    with pytest.raises(ValueError, match="read-only"):
        fixed.units[0] = 3
    assert fixed._address == snapshot.table._address  # noqa: SLF001


def test_changed_snapshot_does_not_carry_state():
    made = a_snapshot(a_cluster(), [a_job(1), a_job(2)])
    snapshot = dataclasses.replace(made, carry=get_scheduling_state(made))
    assert get_scheduling_state(snapshot) is snapshot.carried
    assert dataclasses.replace(snapshot, queue=snapshot.queue[:1]).carried is None
