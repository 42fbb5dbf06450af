"""Slurm's reasons, from the table that the bridge goes by."""

from __future__ import annotations

from cpsched_bridge.adapters.slurm.translation.reasons import REASONS, UNKNOWN, Meaning
from docs.scripts.markdown import code, table


def tables() -> str:
    """What the reasons mean, then each reason with its meaning."""
    meanings = list(dict.fromkeys([*REASONS.values(), UNKNOWN]))
    rows = [(_number(meanings, each), each.whom, each.then) for each in meanings]
    names = [(code(name), _number(meanings, REASONS[name]), REASONS[name].whom) for name in sorted(REASONS)]
    parts = table(("", "it lies with", "a start that meets it"), rows), table(("reason", "", "it lies with"), names)
    return "\n\n".join(parts)


def _number(meanings: list[Meaning], meaning: Meaning) -> int:
    return 1 + meanings.index(meaning)
