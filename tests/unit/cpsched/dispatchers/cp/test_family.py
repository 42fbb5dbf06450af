"""The family of cp19, mod17 and pcp20 on instances small enough to check by hand: the differences of its members."""

from __future__ import annotations

import pytest

from cpsched import registry
from cpsched.feasibility import verify
from cpsched.model import Decision, Job, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import studied

POOLED = ["hcp", "hcp1", "hcp2", "hcp19", "cph"]
IN_ONE_MODEL = ["pcp", "pcp1", "pcp2", "pcp19", "pcp20"]
FAMILY = POOLED + IN_ONE_MODEL
EFFORT = "20000"


def decided(name: str, snapshot: Snapshot, **settings: str) -> Decision:
    decision = studied(name, {"effort": EFFORT} | settings).decide(snapshot)
    assert verify(decision, snapshot) == []
    return decision


def started(name: str, snapshot: Snapshot, **settings: str) -> set[int]:
    return set(decided(name, snapshot, **settings).starts_by_job(snapshot))


def a_choice() -> Snapshot:
    """Four cores; a long job that fills them came first, three short ones a moment ago."""
    long = a_job(1, per_unit=4, walltime_s=1000, submit_s=0)
    short = [a_job(i, per_unit=1, walltime_s=10, submit_s=995) for i in (2, 3, 4)]
    return a_snapshot(a_cluster(nodes=1, cores=4), [long, *short], now_s=1000)


@pytest.mark.parametrize("certain", ["yes", "no"])
@pytest.mark.parametrize("name", FAMILY)
def test_all_dispatchers_find_least_wait(name: str, certain: str) -> None:
    """Whatever the objective: three jobs wait for one, or one for three that are soon over."""
    assert started(name, a_choice(), certain=certain) == {2, 3, 4}


@pytest.mark.parametrize("name", FAMILY)
def test_uncertain_variant_asks_solver_even_if_all_fit(name: str) -> None:
    snapshot = a_snapshot(a_cluster(nodes=2), [a_job(1), a_job(2)])
    assert decided(name, snapshot).effort.path == "all-fit"
    asked = decided(name, snapshot, certain="no")
    assert (asked.effort.path, asked.effort.status, set(asked.starts_by_job(snapshot))) == ("solver", "optimal", {1, 2})


@pytest.mark.parametrize(("name", "first"), [("hcp19", 2), ("pcp19", 2), ("hcp2", 1), ("pcp2", 1), ("cph", 2)])
def test_objectives_prefer_short_job_or_impatient_queue(name: str, first: int) -> None:
    """One job at a time: the long one's queue expects to wait 10 s, the short one's 1,000 s."""
    jobs = [
        a_job(1, per_unit=4, walltime_s=300, submit_s=0, queue="debug"),
        a_job(2, per_unit=4, walltime_s=100, submit_s=0, queue="batch"),
    ]
    snapshot = a_snapshot(a_cluster(nodes=1), jobs, now_s=50)
    dispatcher = registry.DISPATCHERS.build(name, {"effort": EFFORT})
    dispatcher.recall({"debug": [10, 1], "batch": [1000, 1]})
    assert set(dispatcher.decide(snapshot).starts_by_job(snapshot)) == {first}


def an_overdue_run(remaining_s: int) -> Snapshot:
    """Half of a node runs since 100 s ago with an estimate of 100 s less `remaining_s`; one job of 50 s waits."""
    running = [a_running(a_job(9, per_unit=2, walltime_s=1000), ((0, 1),))]
    waiting = a_job(1, per_unit=2, walltime_s=50, submit_s=90)
    estimates = {9: 100 + remaining_s, 1: 50}
    return a_snapshot(a_cluster(nodes=1, cores=4), [waiting], running, 100, estimates)


@pytest.mark.parametrize("name", ["pcp", "pcp1", "hcp", "hcp1", "cph"])
def test_overdue_job_shortens_horizon_and_blocks_queue(name: str) -> None:
    """cp19 section 4: a remaining time of -60 s leaves a horizon of -10 s, so that no job has a start at all."""
    decision = decided(name, snapshot := an_overdue_run(-60))
    assert (decision.effort.path, decision.starts_by_job(snapshot)) == ("infeasible", {})


@pytest.mark.parametrize("name", ["pcp2", "pcp19", "pcp20", "hcp2", "hcp19"])
def test_overdue_job_with_1_second_left_blocks_no_job(name: str) -> None:
    assert started(name, an_overdue_run(-60)) == {1}


@pytest.mark.parametrize("name", FAMILY)
def test_overestimate_delays_no_fitting_job(name: str) -> None:
    assert started(name, an_overdue_run(+5000)) == {1}


@pytest.mark.parametrize("name", ["pcp", "pcp1", "pcp2"])
def test_continues_search_that_solver_gives_up(name: str) -> None:
    """It puts all starts first, and takes none back because of places: whole nodes have no room beside the others."""
    queue = [a_job(1, units=2), a_job(2, units=2, per_unit=2), a_job(3, units=2, exclusive=True)]
    running = [a_running(a_job(9, per_unit=3, walltime_s=15), ((0, 1),))]
    decision = decided(name, a_snapshot(a_cluster(nodes=2, cores=4), queue, running), certain="no")
    assert (decision.effort.path, decision.effort.status) == ("solver", "optimal")
    assert len(decision.starts) > 0


def test_variables_grow_with_nodes_in_pcp19_but_not_pcp20() -> None:
    """A job of two units of one core: 2 on each node, against 1 position each for one resource."""
    counts = {}
    for nodes in (8, 64):
        snapshot = a_snapshot(a_cluster(nodes=nodes, cores=4), [a_job(1, units=2)])
        counts[nodes] = [decided(name, snapshot).effort.variables for name in ("pcp19", "pcp20", "hcp19")]
    assert counts == {8: [1 + 2 * 8, 1 + 2, 1], 64: [1 + 2 * 64, 1 + 2, 1]}


def test_pcp19_and_pcp20_prove_equal_objectives() -> None:
    proved = 0
    for seed in range(12):
        jobs: list[Job] = [
            a_job(
                i, units=(seed + i) % 3 + 1, per_unit=((seed * i) % 3 + 1, (seed + 2 * i) % 4), walltime_s=5 + 7 * i,
                distinct=(seed + i) % 2 == 0,
            )
            for i in range(1, 5)
        ]  # fmt: skip
        running = [a_running(a_job(90, per_unit=(2, 1), walltime_s=20 + seed), ((0, 1),))]
        snapshot = a_snapshot(a_cluster(nodes=3, cores=4, memory=6), jobs, running)
        efforts = [decided(name, snapshot, certain="no").effort for name in ("pcp19", "pcp20")]
        if all(effort.status == "optimal" for effort in efforts):
            proved += 1
            assert efforts[0].objective == pytest.approx(efforts[1].objective)
    assert proved >= 6
