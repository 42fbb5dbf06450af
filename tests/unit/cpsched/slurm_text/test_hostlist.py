"""Node lists."""

from __future__ import annotations

import pytest

from cpsched.slurm_text.hostlist import expand_hostlist, expand_hostlist_or_empty


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, ()),
        ("n1", ("n1",)),
        ("n[1-3],gpu1", ("n1", "n2", "n3", "gpu1")),
        ("n[01-03,7]", ("n01", "n02", "n03", "n7")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n[1-2]-ib", ("n1-ib", "n2-ib")),
    ],
)
def test_expands_hostlist(text: str | None, names: tuple[str, ...]) -> None:
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[1-2", "n]1[", "n[a-b]", "n[1-99999999]", "n[0-199999][0-199999]", f"n[{','.join(['0-199999'] * 99)}]"],
)
def test_rejects_invalid_hostlist(text: str) -> None:
    with pytest.raises(ValueError, match="node list"):
        expand_hostlist(text)


def test_invalid_list_expands_to_nothing_if_tolerated() -> None:
    assert expand_hostlist_or_empty("n[1-2") == ()
    assert expand_hostlist_or_empty("n[1-2]") == ("n1", "n2")
