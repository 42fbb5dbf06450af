"""Commands that are repeated without effect: each is told once, then sent ever more rarely.

The ledger's intents are sent again until the cluster shows that they took effect. One that never does must neither
fill the log nor go unnoticed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

IN_VAIN = 5
"""How often the same command is sent in a row for the same job before that is told, and its rests begin."""
LONGEST_REST_S = 60
REMEMBERED_S = 30
"""How long what was sent is remembered after it seemed to have taken effect: it may not last."""


@dataclass(slots=True)
class _Sent:
    kind: str
    times: int
    next_s: int


@dataclass(slots=True)
class Retries:
    """What was sent last for each pending job, and how often in a row. A command of another kind begins anew."""

    _sent: dict[int, _Sent] = field(default_factory=dict)

    def due(self, kind: str, job_id: int, now_s: int) -> bool:
        """Whether a command may be sent now (cluster time)."""
        last = self._sent.get(job_id)
        return last is None or last.kind != kind or now_s >= last.next_s

    def note(self, kind: str, job_ids: Iterable[int], now_s: int) -> list[int]:
        """Take note of commands that are being sent; the jobs for which that has just become one time too many."""
        stuck = []
        for job_id in job_ids:
            last = self._sent.get(job_id)
            times = last.times + 1 if last is not None and last.kind == kind else 1
            over = times - IN_VAIN
            rest_s = 0 if over < 0 else min(2 ** min(over, 10), LONGEST_REST_S)
            self._sent[job_id] = _Sent(kind, times, now_s + rest_s)
            if over == 0:
                stuck.append(job_id)
        return stuck

    def intend(self, job_ids: Collection[int], now_s: int) -> None:
        """Take note of the jobs for which a command is intended now; the others are forgotten after a while."""
        intended = frozenset(job_ids)
        for job_id, last in list(self._sent.items()):
            if job_id not in intended and now_s >= last.next_s + REMEMBERED_S:
                del self._sent[job_id]
