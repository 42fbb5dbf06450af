"""Words printed by Slurm's programs, parsed as values. An unknown word is never guessed."""

from __future__ import annotations

import pytest

from cpsched.slurm_text import output_values
from cpsched.slurm_text.jobs import JobDependencies


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("1:00:00", 60),
        ("1-02:30:00", 1590),
        ("30:00", 30),
        ("600-00:00:00", 864000),
        ("UNLIMITED", "UNLIMITED"),
        ("Partition_Limit", None),
        ("NOT_SET", None),
        ("N/A", None),
    ],
)
def test_parses_times_to_minutes(word: str, expected: int | str | None) -> None:
    assert output_values.parse_time_limit(word) == expected


@pytest.mark.parametrize("word", ["INVALID", "1:00:16", "5", "-1:00", "1:00:00x"])
def test_rejects_invalid_time_or_seconds(word: str) -> None:
    with pytest.raises(ValueError, match="time"):
        output_values.parse_time_limit(word)


@pytest.mark.parametrize(
    ("word", "expected"),
    [("4000M", 4000), ("4G", 4096), ("1.5G", 1536), ("0", None), ("16777216T", None), ("512K", None)],
)
def test_parses_exact_memory_only(word: str, expected: int | None) -> None:
    if word == "512K":
        with pytest.raises(ValueError, match="not exact"):
            output_values.parse_mib(word)
    else:
        assert output_values.parse_mib(word) == expected


def test_rejects_memory_above_exact_range() -> None:
    assert output_values.parse_mib("16T") == 1 << 24
    with pytest.raises(ValueError, match="not exact"):
        output_values.parse_mib("16777217M")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (
            "cpu=4,mem=16G,node=1,billing=4,gres/gpu:a100=2",
            {"cpu": 4, "mem": 16384, "node": 1, "billing": 4, "gres/gpu:a100": 2},
        ),
        ("cpu=2,license/matlab=1,energy=5", {"cpu": 2}),
        ("gres:gpu:2", {"gres/gpu": 2}),
        ("gres/gpu:a100:1", {"gres/gpu:a100": 1}),
        ("gres/gpu", {"gres/gpu": 1}),
        ("cpu:2,gres/gpu:1g.10gb+me=1,gres:gpu:2080ti", {"cpu": 2, "gres/gpu:1g.10gb+me": 1, "gres/gpu:2080ti": 1}),
        ("N/A", None),
        ("(null)", None),
    ],
)  # fmt: skip
def test_parses_tres(word: str, expected: dict[str, int] | None) -> None:
    assert output_values.parse_tres_amounts(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("gpu:2", {"gpu": 2}),
        ("gpu:a100:2(S:0-1),mps:200", {"gpu:a100": 2, "mps": 200}),
        ("gpu:a:1(S:0,2),gpu:b:1", {"gpu:a": 1, "gpu:b": 1}),
        ("gres:gpu:2", {"gpu": 2}),
        ("gres/gpu:2", {"gpu": 2}),
        ("shard:1K,gpu:1g.10gb:1,gpu:1g.10gb:2", {"shard": 1024, "gpu:1g.10gb": 3}),
        ("scratch:fast:no_consume:2,p:no_consume:1", {"scratch:fast:no_consume": 2, "p:no_consume": 1}),
        ("(null)", {}),
        ("N/A", {}),
    ],
)
def test_parses_gres(word: str, expected: dict[str, int]) -> None:
    assert output_values.parse_gres_counts(word) == expected


@pytest.mark.parametrize("word", ["gpu:2(S:0", "cpu=2,gres/gpu=", "cpu=x", "mem=2Q"])
def test_rejects_resources_that_slurm_rejects(word: str) -> None:
    with pytest.raises(ValueError, match=r"generic|amount"):
        output_values.parse_gres_counts(
            word
        ) if "cpu" not in word and "mem" not in word else output_values.parse_tres_amounts(word)


def test_parses_dependencies_by_type() -> None:
    found = output_values.parse_dependencies("afterok:12(unfulfilled):13,singleton(unfulfilled)")
    assert found == JobDependencies((("afterok", "12(unfulfilled)"), ("afterok", "13")), singleton=True)
    either = output_values.parse_dependencies("afternotok:40_1(failed)?afterany:40_*(unfulfilled)")
    conditions = (("afterany", "40_*(unfulfilled)"), ("afternotok", "40_1(failed)"))
    assert either == JobDependencies(conditions, is_any_sufficient=True)
    assert output_values.parse_dependencies("(null)") is None
    with pytest.raises(ValueError, match="dependency 'unknown:7"):
        output_values.parse_dependencies("afterok:6,unknown:7(unfulfilled)")
