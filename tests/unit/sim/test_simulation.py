import json
from dataclasses import replace

import numpy as np
import pytest

from cpsched import Dispatcher, plan
from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import InvalidValue, PolicyError, UnknownName
from cpsched.model import Job, PowerCap, Request
from cpsched.policy_spec import PolicySpec
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES, OraclePredictor
from cpsched_sim.comparison import compare
from cpsched_sim.errors import InputError
from cpsched_sim.simulation import ReplaySpec, replay_workload, simulate, write_replay_results
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload
from tests.builders import a_cluster, a_job


def a_workload(*jobs, nodes=1, cores=4):
    return Workload("made", "up", a_cluster(nodes, cores), list(jobs), {}, ("a note",))


def ran(id, run_s=10, submit_s=0, **request):
    return TraceJob(a_job(id, submit_s=submit_s, walltime_s=100, **request), run_s)


def test_reads_expected_waits_from_named_file(tmp_path):
    path = tmp_path / "waits.json"
    path.write_text('{"long": 600}')
    policy = ReplaySpec(PolicySpec.of("prb", settings={"ewt_file": str(path)})).build()
    assert policy.dispatcher.expected_waits.expected_wait_s("long") == 600
    path.write_text('{"long": 0}')
    with pytest.raises(InvalidValue, match="long=0: must be a positive number of seconds"):
        ReplaySpec(PolicySpec.of("prb", settings={"ewt_file": str(path)})).build()
    with pytest.raises(InvalidValue, match=r"ewt_file=.*gone.json: cannot be read as JSON"):
        ReplaySpec(PolicySpec.of("prb", settings={"ewt_file": str(tmp_path / "gone.json")})).build()


def test_oracle_knows_trace():
    policy = ReplaySpec(PolicySpec("easy", "oracle")).build([ran(1, run_s=33)])
    assert isinstance(policy.predictor, OraclePredictor)
    assert policy.predictor.predict(a_job(1)) == 33


def test_oracle_data_is_no_setting():
    with pytest.raises(UnknownName, match="'trace'"):
        PolicySpec.of("easy", "oracle", {"trace": "x"}, known=SIMULATION_REGISTRIES)


def test_simulation_measures_jobs_that_ran():
    simulation = replay_workload(
        a_workload(ran(1, units=3), ran(2, units=2), ran(3, units=9)), ReplaySpec(PolicySpec("fcfs"))
    )
    assert (simulation.never_started_count, simulation.measures.wait_s.tolist()) == (1, [0, 10])
    assert simulation.measures.processors.tolist() == [3, 2]
    assert simulation.summary()["utilization"] == 50 / (4 * 20)


def test_rejects_workload_without_runnable_job():
    with pytest.raises(InputError, match="made: no job can run on up: requests 9 units"):
        replay_workload(a_workload(ran(1, units=9)), ReplaySpec())


def test_always_failing_dispatcher_reports_first_error():
    with pytest.raises(PolicyError, match=r"dispatcher RaisingDispatcher: ZeroDivisionError: .*bad_plugins.py:\d+"):
        replay_workload(
            a_workload(ran(1), ran(2), nodes=2), ReplaySpec(PolicySpec("tests.bad_plugins:RaisingDispatcher"))
        )


def test_writes_complete_results(tmp_path):
    write_replay_results(replay_workload(a_workload(ran(1)), ReplaySpec(charge=2.0)), tmp_path / "deep" / "folder")
    written = json.loads((tmp_path / "deep" / "folder" / "summary.json").read_text())
    assert written["setup"] == {
        "trace": "made",
        "system": "up",
        "dispatcher": "easy",
        "predictor": "walltime",
        "settings": {},
        "limits": {},
        "charge": 2.0,
        "left_waiting": 0,
        "notes": ["a note"],
        "hints": [],
    }


def test_whole_nodes_count_all_processors():
    job = Job(1, 0, 100, Request(1, (1,), exclusive=True))
    simulation = replay_workload(a_workload(TraceJob(job, 10), nodes=2), ReplaySpec())
    assert simulation.measures.processors.tolist() == [4]


def test_figures_are_plain_json_numbers():
    summary = replay_workload(a_workload(ran(1), ran(2)), ReplaySpec()).summary()
    assert not any(isinstance(value, np.generic) for value in summary.values())
    json.dumps(summary)


def capped(cap_w, *jobs):
    """A workload on a machine of four cores of 8 W."""
    workload = a_workload(*jobs)
    return replace(workload, cluster=replace(workload.cluster, power=PowerCap.of(cap_w, {"cores": 8})))


@pytest.mark.parametrize(("cap_w", "starts"), [(31, [0, 10]), (32, [0, 0])])
@pytest.mark.parametrize("dispatcher", ["list-reg", "greedy", "easy", "lookahead", "hcp19", "pcp20", "cp-af", "prb"])
def test_power_cap_of_system_applies_to_every_dispatcher(dispatcher, cap_w, starts):
    """Two jobs of 16 W."""
    simulation = replay_workload(capped(cap_w, ran(1, units=2), ran(2, units=2)), ReplaySpec(PolicySpec(dispatcher)))
    assert simulation.schedule.start_s.tolist() == starts


def test_job_above_power_cap_never_runs_and_blocks_no_other():
    schedule = replay_workload(capped(15, ran(1, units=2), ran(2, units=1)), ReplaySpec()).schedule
    assert schedule.refused == {0: "draws 16 W, but the power cap is 15 W"}
    assert schedule.start_s.tolist()[1] == 0


def test_start_above_power_cap_is_violation():
    """It answers with the slots of the whole queue, whatever it is given."""

    class Deaf(EasyDispatcher):
        def decide(self, snapshot, need="plan"):
            return super().decide(replace(snapshot, queue=np.arange(2), by_construction=True), need)

    with pytest.raises(PolicyError, match="at 0 s: job 2: is not in the queue"):
        simulate(capped(31, ran(1, units=2), ran(2, units=2)), Deaf())


class Looking(Dispatcher):
    """Like EASY; keeps every job that it was shown."""

    def __init__(self):
        self.shown = []

    def decide(self, snapshot, need="plan"):
        self.shown += snapshot.queued_jobs()
        return plan(snapshot, reservations=1, need=need)


def test_dispatcher_never_sees_recorded_start():
    """What a dispatcher gets are `Job`s, a type that has no place for one; so starts recorded change no decision."""
    jobs = [ran(1, 50, units=4), ran(2, 20, 1, units=4), ran(3, 20, 2, units=1)]
    recorded = [replace(item, recorded_start_s=1000 - item.job.id) for item in jobs]
    looking = Looking()
    plain, told = (simulate(a_workload(*items), looking).schedule for items in (jobs, recorded))
    assert plain.start_s.tolist() == told.start_s.tolist()
    assert {type(job) for job in looking.shown} == {Job}
    assert not {name for name in Job.__dataclass_fields__ if "record" in name or name == "start_s"}


def test_search_settings_have_names(four_jobs):
    """As the options --seed, --limit and --effort of the command."""
    found = simulate(four_jobs, "pcp20", settings={"seed": 3, "effort": 50})
    assert found.setup.policy.dispatcher_settings == {"seed": "3", "effort": "50"}
    one, other = compare(four_jobs, ["pcp20", "easy"], settings={"seed": 3, "limit_s": 9.0}).rows[:2]
    assert one.simulation.setup.policy.dispatcher_settings == {"seed": "3", "limit_s": "9.0"}
    assert other.simulation.setup.policy.dispatcher_settings == {}
