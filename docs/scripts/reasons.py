"""Slurm's reasons, from the table that the bridge goes by."""

from __future__ import annotations

from cpsched_bridge.adapters.slurm.translation.pending_reasons import REASONS, UNKNOWN, ReasonMeaning
from docs.scripts.markdown import code, table


def tables() -> str:
    """What the reasons mean, then each reason with its meaning."""
    meanings = list(dict.fromkeys([*REASONS.values(), UNKNOWN]))
    rows = [(_number(meanings, each), each.scope, each.then) for each in meanings]
    names = [(code(name), _number(meanings, REASONS[name]), REASONS[name].scope) for name in sorted(REASONS)]
    parts = table(("", "it lies with", "a start that meets it"), rows), table(("reason", "", "it lies with"), names)
    return "\n\n".join(parts)


def _number(meanings: list[ReasonMeaning], meaning: ReasonMeaning) -> int:
    return 1 + meanings.index(meaning)
