"""Count generic resources, such as GPUs, by name, and by name and type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cpsched.slurm_text.gres import NO_CONSUME

Amounts = dict[str, int]
"""Generic resources by name: {"gpu": 2, "gpu:a100": 2}. A typed resource also counts under its general name."""
_NO_CONSUME_SUFFIX = f":{NO_CONSUME}"


def parse_gres_amounts(items: Mapping[str, int]) -> Amounts:
    """Return counts of generic resources by name and by name:type.

    Keys have the form "gres/gpu:a100", "gpu:a100" or "gres:gpu". Resources that jobs share (`parse_no_consume_amounts`)
    are omitted.
    """
    found: Amounts = {}
    for key, count in items.items():
        name = key.removeprefix("gres/").removeprefix("gres:")
        if not name.endswith(_NO_CONSUME_SUFFIX):
            found[name] = found.get(name, 0) + int(count)
    for name in [name for name in found if ":" in name]:
        general = name.partition(":")[0]
        typed = sum(count for other, count in found.items() if other.startswith(f"{general}:"))
        found[general] = max(found.get(general, 0), typed)
    return found


def parse_no_consume_amounts(items: Mapping[str, int]) -> Amounts:
    """Return the counts of resources that several jobs may share (`no_consume`)."""
    return parse_gres_amounts(
        {
            key.removesuffix(_NO_CONSUME_SUFFIX): count
            for key, count in items.items()
            if key.endswith(_NO_CONSUME_SUFFIX)
        }
    )


def find_typed_gres(names: Iterable[str]) -> set[str]:
    """Return the general names of the generic resources that are listed with a type: "gpu" for "gpu:a100"."""
    return {name.partition(":")[0] for name in names if ":" in name}


def gres_from_tres(tres: Mapping[str, int] | None) -> Amounts:
    """Return the generic resources in a dict such as {"cpu": 4, "gres/gpu": 2}."""
    return parse_gres_amounts({key: count for key, count in (tres or {}).items() if key.startswith("gres/")})
