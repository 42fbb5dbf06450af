"""Generic resources in Slurm's syntax: the names that Slurm lets a site choose, and the names that it rejects."""

from __future__ import annotations

import pytest

from cpsched.slurm_text.gres import Gres, SharedGpus, parse_gres, parse_shared_gpus, parse_slurm_count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:2080ti:8(S:0-1)", [Gres("gpu", "2080ti", 8)]),
        ("gpu:h100:2(S:0),gpu:1g.10gb+me:7(S:1,3)", [Gres("gpu", "h100", 2), Gres("gpu", "1g.10gb+me", 7)]),
        ("gpu:2080ti", [Gres("gpu", "2080ti")]),
        ("gpu:1g", [Gres("gpu", "", 1024**3)]),
        ("shard:1K,mps:2kb,tape", [Gres("shard", "", 1024), Gres("mps", "", 2000), Gres("tape")]),
        ("scratch:fast:no_consume:1", [Gres("scratch", "fast", 1, False)]),
        ("profiler:No_Consume:4K,x:no_consume", [Gres("profiler", "", 4096, False), Gres("x", "", 1, False)]),
        ("gres:gpu:a100:2,gres/gpu:1g.10gb=1,gres/gpu", [Gres("gpu", "a100", 2), Gres("gpu", "1g.10gb"), Gres("gpu")]),
        ("gpu:(null):0(IDX:N/A)", [Gres("gpu", "", 0)]),
        (",,gpu:2,", [Gres("gpu", "", 2)]),
        ("5:é@x_y-z/w:3", [Gres("5", "é@x_y-z/w", 3)]),
        ("(null)", []),
        ("N/A", []),
        ("", []),
    ],
)  # fmt: skip
def test_parses_gres_lists_like_slurm(text: str, expected: list[Gres]) -> None:
    assert list(parse_gres(text)) == expected


@pytest.mark.parametrize(
    "text", ["gpu:", ":2", "gres/gpu=x", "gpu:2(S:0", "gpu:2)", "gpu:a100:2(S:0),(S:1)", "gpu:16384P"]
)
def test_rejects_what_slurm_rejects(text: str) -> None:
    with pytest.raises(ValueError, match="generic resource"):
        parse_gres(text)


@pytest.mark.parametrize(
    ("word", "expected"),
    [("0", 0), ("7", 7), ("1KiB", 1024), ("1GB", 10**9), ("1x", None), ("", None), ("٣", None), ("9" * 5000, None)],
)
def test_parses_counts(word: str, expected: int | None) -> None:
    assert parse_slurm_count(word) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:a100:1(IDX:2),shard:a100:5(3/4,2/4,-/4)", SharedGpus("shard", 4, (3, 2, None))),
        ("gpu:a100:1(IDX:2),shard:a100:5(3/4,2/4,0/4)", SharedGpus("shard", 4, (3, 2, None))),
        ("gpu:2(IDX:0-1),mps:0(-/100,-/100)", SharedGpus("mps", 100, (None, None))),
        ("gpu:a100:1(IDX:2),shard:a100:5(3/4,-/4,2/4)", None),
        ("gpu:a100:1(IDX:0),shard:a100:5(3/4,2/4)", None),
        ("gpu:0(IDX:N/A),shard:5(3/4,2/2)", None),
        ("gpu:a100:0(IDX:N/A),gpu:l40:0(IDX:N/A),shard:a100:0(0/4),shard:l40:0(0/4)", None),
        ("gpu:0(IDX:N/A),mps:0(0/100),shard:0(0/4)", None),
        ("gpu:0,shard:0", None),
        ("gpu:2(IDX:0-1)", None),
        ("", None),
    ],
)
def test_parses_the_use_of_shared_gpus(text: str, expected: SharedGpus | None) -> None:
    """Releases before 26.05 show no used parts of a GPU that a job uses as a whole."""
    assert parse_shared_gpus(text) == expected
