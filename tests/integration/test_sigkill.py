"""SIGKILL of the bridge at random moments: no job lost or started twice, ledger and cluster agree after one cycle."""

import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched_bridge.adapters.mock.backend import MockBackend
from cpsched_bridge.adapters.mock.morning import loaded_morning
from cpsched_bridge.adapters.mock.site import MockCluster
from cpsched_bridge.cycle.pace import RealPace
from cpsched_bridge.ports import Hold
from cpsched_bridge.store.ledger import State
from cpsched_sim.traces.job import TraceJob
from tests.bridges import a_bridge
from tests.remote_site import RemoteBackend, serve

KILLS = int(os.environ.get("CPSCHED_SIGKILLS", "20"))
"""More by `make chaos`."""
JOBS = 400
STEP_S = 10
"""Time at the site passes by so much with each reading, up to the test's limit: each kill has its part of the day."""
LAST_SUBMIT_S = 3600
READINGS = 40
"""A bridge is killed behind one of so many of its first readings, however long they take on a busy machine.

Every other kill comes at the end of its part of the day, or nearly so: few jobs are left to the last bridge.
"""
LONGEST_RUN_S = 1800
"""The last bridge runs until every job has ended, a cycle for each step."""
FORK = multiprocessing.get_context("fork")
"""Forked, so that a new bridge is there within milliseconds; the site is not its child and outlives it."""


class AuditedBackend(MockBackend):
    """Time passes with each reading, up to `limit`, and the site's own books can be asked for as a check.

    `readings` counts them, for the process that kills the bridge.
    """

    def __init__(self, site, limit, readings):
        super().__init__(site, self)
        self.at_s, self.limit, self.readings = 0, limit, readings

    def now_s(self):
        return self.at_s

    def read(self, since):
        self.at_s = min(self.at_s + STEP_S, self.limit.value)
        self.readings.value += 1
        return super().read(since)

    def checks(self):
        return dict(self.site.starts), dict(self.site.repeated)


def a_crowded_hour():
    """Jobs that come in half of the time of a loaded morning: about a third of them wait."""
    cluster, morning = loaded_morning(900, seed=5)
    short = [item for item in morning if item.run_s <= LONGEST_RUN_S][:JOBS]
    return cluster, [TraceJob(replace(item.job, submit_s=item.job.submit_s // 2), item.run_s) for item in short]


def serve_site(socket, limit, readings):
    cluster, jobs = a_crowded_hour()
    serve(AuditedBackend(MockCluster(cluster, jobs, launch_s=2 * STEP_S + 5), limit, readings), socket)


def a_real_bridge(state_dir, socket):
    backend = RemoteBackend(socket, deadline_s=20.0)
    return a_bridge(
        state_dir, backend, EasyDispatcher(), RealPace(), start={"timeout_s": 5 * STEP_S}, cycle={"interval_s": 0.001}
    )


def run_bridge(state_dir, socket):
    a_real_bridge(state_dir, socket).run()


def one_cycle(state_dir, socket):
    """A restarted bridge's first cycle; what stands in the ledger and what the cluster shows right after it."""
    bridge = a_real_bridge(state_dir, socket)
    report = bridge.cycle()
    assert report.result == "ok", report.happenings
    seen = bridge.backend.observe(bridge.ledger.pinned())
    entries = {entry.job_id: entry for entry in bridge.ledger.entries()}
    bridge.ledger.close()
    bridge.journal.close()
    bridge.backend.close()
    return entries, seen


def run_to_the_end(state_dir, socket):
    """Cycles of a last bridge until every job has ended; the ids of the ledger."""
    bridge = a_real_bridge(state_dir, socket)
    while bridge.cycle().observation.now_s < LAST_SUBMIT_S or bridge.ledger.open_ids():
        pass
    found = [entry.job_id for entry in bridge.ledger.entries()]
    bridge.ledger.close()
    bridge.journal.close()
    bridge.backend.close()
    return found


def disagreements(entries, seen):
    """Where the ledger and a reading taken right after its cycle cannot both be right."""
    found = []
    for pending in seen.pending:
        entry = entries.get(pending.job.id)
        if entry is None:
            arrived = seen.now_s - pending.job.submit_s <= 2 * STEP_S and pending.hold is Hold.PLUGIN
            found += [] if arrived else [f"{pending.job.id} is unknown and {pending.hold}"]
        elif (entry.state, pending.hold) not in {
            (State.HELD, Hold.PLUGIN),
            (State.HELD, Hold.ADMIN),
            (State.STARTING, Hold.NONE),
        }:
            found.append(f"{pending.job.id} is {entry.state} and {pending.hold}")
    for running in seen.running:
        if entries[running.job.id].state not in (State.RUNNING, State.STARTING):
            found.append(f"{running.job.id} runs and is {entries[running.job.id].state}")
    visible = {p.job.id for p in seen.pending} | {r.job.id for r in seen.running}
    for entry in entries.values():
        if entry.state in (State.HELD, State.GONE) and entry.job_id not in visible:
            found.append(f"{entry.job_id} is {entry.state} and nowhere")
    return found


def audit(socket):
    client = RemoteBackend(socket, deadline_s=20.0)
    try:
        return client.checks(), client.history()
    finally:
        client.close()


def test_a_bridge_killed_again_and_again_loses_and_repeats_nothing(tmp_path):
    socket, rng = tmp_path / "site.sock", random.Random(int(os.environ.get("CPSCHED_SEED", "20261120")))
    limit, readings = FORK.Value("q", 0), FORK.Value("q", 0)
    site = FORK.Process(target=serve_site, args=(socket, limit, readings), daemon=True)
    site.start()
    try:
        while not socket.exists():
            time.sleep(0.01)
        states_left = set()
        for kill in range(1, KILLS + 1):
            limit.value = kill * LAST_SUBMIT_S // KILLS
            bridge = FORK.Process(target=run_bridge, args=(tmp_path, socket))
            killed_behind = readings.value + rng.randrange(READINGS)
            bridge.start()
            while readings.value < killed_behind and bridge.is_alive():
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.01))
            os.kill(bridge.pid, signal.SIGKILL)
            bridge.join()
            assert bridge.exitcode == -signal.SIGKILL
            entries, seen = one_cycle(tmp_path, socket)
            assert disagreements(entries, seen) == []
            states_left |= {entry.state for entry in entries.values()}
        assert {State.HELD, State.STARTING, State.RUNNING, State.ENDED} <= states_left, "the kills came in mid-run"
        limit.value = 10 * LAST_SUBMIT_S
        submitted = run_to_the_end(tmp_path, socket)
        (starts, repeated), ended = audit(socket)
        assert sorted(e.job.id for e in ended) == submitted == sorted(starts)
        assert len(ended) == JOBS
        assert set(starts.values()) == {1}
        assert not any(repeated.values())
    finally:
        site.kill()
        site.join()
