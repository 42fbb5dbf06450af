import json
import random
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpsched.policy_spec import PolicySpec
from cpsched_bridge.store.json_deltas import JsonDeltaReader, JsonDeltaWriter, apply_delta, compute_delta, encode_json
from cpsched_bridge.store.round_records import round_trip_json
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.benchmarks.journal import World

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", ""]) | st.sampled_from([0.5, 1.0])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=20,
)
orders = st.permutations(range(12)).flatmap(lambda order: st.integers(0, 12).map(lambda many: order[:many]))


def strictly(value):
    """JSON distinguishes true from 1, unlike `==`."""
    return json.dumps(value, sort_keys=True)


@given(st.lists(values, max_size=5))
@scaled_example_settings(300)
def test_series_of_values_is_read_back_unchanged(series):
    writer, reader = JsonDeltaWriter(), JsonDeltaReader()
    for value in series:
        reader.decode_next(writer.encode_next(value))
        assert reader.value == value
        assert strictly(reader.value).replace("1.0", "1") == strictly(value).replace("1.0", "1")


@given(orders, orders)
@settings(max_examples=200)  # a quarter missed a fault that all notice
def test_delta_transforms_any_order_into_any_other(before, after):
    kept = list(before)
    assert apply_delta(before, compute_delta(before, after)) == list(after)
    assert before == kept, "what is changed is a copy"


@pytest.mark.parametrize("length", range(5))
def test_delta_transforms_each_small_permutation(length):
    before = list(range(length))
    for after in map(list, permutations(before)):
        assert apply_delta(before, compute_delta(before, after)) == after


def test_equal_values_have_no_delta():
    assert compute_delta({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) is None
    assert apply_delta([1, 2], None) == [1, 2]


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), ([1, 2], [True, 2]), ({"a": 1}, {"a": True})])
def test_distinguishes_numbers_from_booleans(before, after):
    assert strictly(apply_delta(before, compute_delta(before, after))) == strictly(after)
    assert strictly(apply_delta(after, compute_delta(after, before))) == strictly(before)


def test_delta_of_few_moves_is_small():
    """A search that swaps and inserts a few jobs of 2,000: what is written is proportional to the moves."""
    rng, before = random.Random(1), list(range(100_000, 102_000))
    after = list(before)
    for _ in range(10):
        after.insert(rng.randrange(2000), after.pop(rng.randrange(2000)))
    change = compute_delta(before, after)
    assert apply_delta(before, change) == after
    assert len(change[1]) <= 10
    assert len(encode_json(change)) < 300


def test_delta_of_one_element_is_one_element():
    free = [[16, 64000] for _ in range(500)]
    assert compute_delta(free, [*free[:7], [0, 1], *free[8:]]) == [2, [[7, [0, [0, 1]]]]]


def test_writes_elements_one_by_one_below_half():
    rows = [[n] for n in range(5)]
    assert compute_delta(rows, [[7], [8], *rows[2:]]) == [2, [[0, [0, [7]]], [1, [0, [8]]]]]
    assert compute_delta(rows[:4], [[7], [8], *rows[2:4]]) == [0, [[7], [8], [2], [3]]]


def test_writes_completely_changed_list_whole():
    assert compute_delta([1, 2, 3], [4, 5, 6]) == [0, [4, 5, 6]]


def test_delta_is_never_longer_than_list():
    """Taking out costs one number, putting in two."""
    assert compute_delta([1, 2, 3], [1, 2, 4]) == [3, [2], [[2, 4]]]
    assert compute_delta([1, 2, 3, 4], [1, 2, 5, 6]) == [0, [1, 2, 5, 6]]


@pytest.mark.parametrize("part", [b"", b"\xff" * 20])
def test_damaged_part_is_value_error(part):
    reader = JsonDeltaReader()
    with pytest.raises(ValueError, match=r"."):
        reader.decode_next(part)


def test_part_out_of_order_is_value_error():
    writer, reader = JsonDeltaWriter(), JsonDeltaReader()
    writer.encode_next({"a": {"b": list(range(100))}})
    with pytest.raises(ValueError, match=r"."):
        reader.decode_next(writer.encode_next({"a": {"b": list(range(1, 101))}}))


def test_writes_changes_of_lookahead_memory_only():
    """A memory that is written whole each round fills a journal of a month in two days."""
    policy, world, changed, whole, before = PolicySpec("lookahead", "walltime").build(), World(100), 0, 0, None
    for number in range(80):
        scene, ended = world.next_scene()
        for each in ended:
            policy.learn(each)
        snapshot, memory = policy.add_estimates(scene), round_trip_json(policy.memory())
        if number >= 40:
            changed += len(json.dumps(compute_delta(before, memory)))
            whole += len(json.dumps(memory))
        before = memory
        world.start(policy.decide(snapshot).starts_by_job(snapshot))
    assert 10 * changed < whole
