"""Show and forget what the bridge remembers against jobs, users and groups.

An administrator overrules this memory: `cpsched status` shows it with its age, and `cpsched forget` ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cpsched.formatting import format_count
from cpsched_bridge.cycle.backoff import BackoffQueue
from cpsched_bridge.cycle.circuit_breaker import CircuitBreaker
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.ports import Observation
from cpsched_bridge.store.ledger import Ledger, LedgerState, ManagedJobEntry, make_transition
from cpsched_bridge.store.lock_and_request_files import ForgetFile, ForgetRequest, MemoryFile, RememberedFact

_UNMANAGED_STATES = frozenset({LedgerState.FREE, LedgerState.RELEASING})


@dataclass(frozen=True, slots=True)
class BridgeMemory:
    """Everything that the bridge remembers against jobs, users and groups.

    A job that is left to the cluster is remembered in the ledger, and everything else only by this process.
    """

    ledger: Ledger
    backoff: BackoffQueue
    breaker: CircuitBreaker
    requests: ForgetFile
    shown: MemoryFile

    def apply_forget_requests(self, seen: Observation, recorder: CycleRecorder) -> None:
        """Forget what operators have asked to forget since the last cycle."""
        for request in self.requests.consume_requests():
            entries = [entry for entry in self._find_entries(request, seen) if entry.unmanaged_reason or entry.failures]
            why = "an operator ran `cpsched forget`"
            self.ledger.record(
                (
                    make_transition(each, each.state, seen.now_s, why, unmanaged_reason="", failures=0)
                    for each in entries
                ),
                recorder.number,
            )
            user = request.name if request.kind == "user" else ""
            self.breaker.forget_user(user)
            groups = self.backoff.forget(self._find_job_ids(request, seen), user)
            ended = f"{format_count(len(entries), 'job')} in the ledger, {format_count(groups, 'backoff')}"
            detail = f"{request.kind} {request.name}: {ended}"
            recorder.add_event("forgotten", detail)

    def _find_entries(self, request: ForgetRequest, seen: Observation) -> list[ManagedJobEntry]:
        entries = self.ledger.by_id
        return [entries[id] for id in self._find_job_ids(request, seen) if id in entries]

    def _find_job_ids(self, request: ForgetRequest, seen: Observation) -> list[int]:
        jobs = [(each.job.id, each.label, each.job.user) for each in seen.pending]
        jobs += [(each.job_id, each.label, each.user) for each in seen.unmanaged]
        if request.kind == "user":
            return [id for id, _, user in jobs if user == request.name]
        return [id for id, label, _ in jobs if request.name in (str(id), label)]

    def write(self, seen: Observation, recorder: CycleRecorder, monotonic_s: float) -> None:
        """Show what is remembered after a cycle."""
        facts = [*self._list_backoffs(seen, recorder), *self._list_failing_users(recorder, monotonic_s)]
        self.shown.write([*facts, *self._list_unmanaged_jobs(seen, recorder)])

    def _list_backoffs(self, seen: Observation, recorder: CycleRecorder) -> Iterator[RememberedFact]:
        for group, reason, since_s in self.backoff.list_groups():
            yield RememberedFact(group, f"in backoff: {reason}", recorder.at_unix_s - (seen.now_s - since_s))

    def _list_failing_users(self, recorder: CycleRecorder, monotonic_s: float) -> Iterator[RememberedFact]:
        for user in self.breaker.list_failing_users(monotonic_s):
            age_s = monotonic_s - self.breaker.get_first_failure_s(user)
            fact = "all starts failed, which counts for the circuit breaker"
            yield RememberedFact(f"user {user}", fact, recorder.at_unix_s - age_s)

    def _list_unmanaged_jobs(self, seen: Observation, recorder: CycleRecorder) -> Iterator[RememberedFact]:
        pending = {each.job.id for each in seen.pending}  # the bridge could manage these jobs
        for entry in self.ledger.list_entries(*_UNMANAGED_STATES):
            if entry.unmanaged_reason and entry.job_id in pending:
                since_unix_s = recorder.at_unix_s - (seen.now_s - entry.since_s)
                yield RememberedFact(
                    f"job {entry.label or entry.job_id}", f"unmanaged: {entry.unmanaged_reason}", since_unix_s
                )
