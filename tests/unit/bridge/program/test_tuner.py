"""The tuner beside the bridge: when it runs, what it does with answers and failures, and that none touches a cycle."""

import json
import resource
import time
from dataclasses import replace

import pytest

from cpsched.goals import Goal
from cpsched.model import EndedJob
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_bridge.cycle.tuned import Changing
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.in_force import InForce
from cpsched_bridge.program import assembly, tuning_process
from cpsched_bridge.program import tuner as of_tuner
from cpsched_bridge.program.assembly import prepared
from cpsched_bridge.program.tuner import Tuner, tuning
from cpsched_bridge.report import CycleReport
from cpsched_bridge.settings import Settings, TuneSettings, load
from cpsched_bridge.store.redecide import decide_again
from cpsched_bridge.store.tuning import TuningFile, TuningState
from cpsched_bridge.store.weeks import WeeksFile
from cpsched_sim.tuning import tuner as of_replays
from tests.bridges import a_bridge
from tests.builders import a_job
from tests.fakes import FakeCluster, FirstFit
from tests.unit.sim.tuning.weeks import weeks

BASE = PolicySpec("lookahead")
OTHER = PolicySpec("lookahead", dispatcher_settings={"objective": "slowdown"})
HOUR_S = 3600
FOUND = {
    "at_s": 0, "verdict": "better", "sentence": "Change objective=slowdown.", "changes": "objective=slowdown",
    "chosen": {"dispatcher": "lookahead", "predictor": "walltime", "overrun": None,
               "dispatcher_settings": {"objective": "slowdown"}, "predictor_settings": {}},
    "ratio": 0.8, "low": 0.7, "high": 0.9, "worst_window": 0.9, "came": None,
}  # fmt: skip


class FakeProcess:
    def __init__(self):
        self.lives, self.status, self.killed = True, 0, False

    def alive(self, wait_s=0.0):
        return self.lives

    def kill(self):
        self.killed = True
        self.lives = False
        return self.status


class World:
    """A tuner with a fake process and a fake clock."""

    def __init__(self, folder, mode="on", **settings):
        self.folder, self.now_s, self.clock_s = folder, 1_000_000_000, 0.0
        self.processes, self.requests = [], []
        self.tuner = Tuner(TuneSettings(mode=mode, **settings), Goal(), BASE, folder, lambda: self.clock_s, self.start)

    def start(self, request, result):
        self.requests.append(json.loads(request.read_text()))
        self.result = result
        self.processes.append(FakeProcess())
        return self.processes[-1]

    def cycle(self, *ended):
        report = CycleReport(1, "control", 0.0, ended=list(ended))
        cluster = FakeCluster()
        report.observation = replace(cluster.observe(), now_s=self.now_s)
        self.tuner(report)

    def answer(self, content, status=0):
        if content is not None:
            self.result.write_text(content if isinstance(content, str) else json.dumps(content))
        self.processes[-1].lives, self.processes[-1].status = False, status
        self.tuner.look()

    def run(self, content, status=0):
        self.cycle()
        self.tuner.look()
        self.answer(content, status)

    def news(self):
        return [(each.kind, each.detail) for each in self.tuner.news()]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def ended(id=1, submit_s=0):
    return EndedJob(a_job(id, submit_s=submit_s, user="ann"), submit_s + 1, submit_s + 50)


def test_it_runs_once_a_day_by_the_clusters_clock(world):
    world.tuner.look()
    assert world.requests == []
    world.run({**FOUND, "at_s": world.now_s})
    world.now_s += 24 * HOUR_S - 1
    world.cycle()
    world.tuner.look()
    assert len(world.requests) == 1
    world.now_s += 1
    world.cycle()
    world.tuner.look()
    assert len(world.requests) == 2


def test_what_is_asked_names_the_goal_the_policy_and_the_budget(world):
    world.cycle()
    world.tuner.look()
    asked = world.requests[0]
    assert (asked["name"], asked["now_s"], asked["since_s"]) == ("balance", world.now_s, None)
    assert asked["present"]["dispatcher"] == "lookahead"
    assert (asked["cpu_s"], asked["memory_mib"], asked["weeks"]) == (3600, 1024, 4.0)


def test_a_clear_gain_comes_into_force_is_told_and_found_again_after_a_restart(world):
    assert world.tuner.wanted() == BASE
    world.run({**FOUND, "at_s": world.now_s})
    assert world.tuner.wanted() == OTHER
    assert world.news() == [("tuned", "objective=slowdown: -20 % is expected")]
    assert world.news() == []
    told = world.tuner.told
    assert (told.tuned, told.expects, told.mode) == (True, 0.8, "on")
    assert World(world.folder).tuner.wanted() == OTHER
    assert World(world.folder, mode="advise").tuner.wanted() == BASE


def test_advise_says_what_it_would_change_and_changes_nothing(tmp_path):
    world = World(tmp_path, mode="advise")
    world.run({**FOUND, "at_s": world.now_s})
    assert world.tuner.wanted() == BASE
    assert world.news() == [("tuning_advises", "Change objective=slowdown.")]
    assert world.tuner.told.status == "Change objective=slowdown."


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (None, -9, "ended without an answer (exit status -9)"),
        (None, -24, "budget of CPU time is too small: tune.cpu_s is 3600"),
        ("", 0, "makes no sense"),
        ("garbage", 0, "makes no sense"),
        ("[" * 9000, 0, "makes no sense"),
        ("[]", 0, "makes no sense"),
        ({**FOUND, "ratio": "much"}, 0, "makes no sense"),
        ({**FOUND, "ratio": float("nan")}, 0, "makes no sense"),
        ({**FOUND, "chosen": {"dispatcher": "x", "what": 1}}, 0, "makes no sense"),
        ({"verdict": "better"}, 0, "makes no sense"),
        ({"error": "Unusable: too few jobs"}, 0, "too few jobs"),
    ],
    ids=str,
)
def test_whatever_goes_wrong_is_told_once_and_tried_again_a_day_later(world, content, status, told):
    world.run(content, status)
    ((kind, detail),) = world.news()
    assert kind == "tuning_failed"
    assert told in detail
    assert world.tuner.wanted() == BASE
    world.cycle()
    world.tuner.look()
    assert len(world.requests) == 1
    world.now_s += 24 * HOUR_S
    world.run(content, status)
    assert len(world.requests) == 2
    assert world.news() == []


def test_a_process_that_hangs_is_killed(world):
    world.cycle()
    world.tuner.look()
    world.clock_s = 6 * 3600.0
    world.tuner.look()
    assert not world.processes[0].killed
    world.clock_s += 1
    world.tuner.look()
    assert world.processes[0].killed
    assert "did not end within 21600 s" in world.news()[0][1]


def test_a_process_that_cannot_be_started_is_told(tmp_path):
    def nobody(request, result):
        raise OSError(12, "Cannot allocate memory")

    world = World(tmp_path)
    world.tuner._start = nobody  # noqa: SLF001
    world.cycle()
    world.tuner.look()
    assert "cannot be started" in world.news()[0][1]
    world.tuner.look()
    assert world.news() == []


def test_a_change_that_cannot_be_kept_is_not_made(world, monkeypatch):
    world.cycle()
    world.tuner.look()
    with monkeypatch.context() as patch:
        patch.setattr(of_tuner.TuningFile, "write", lambda self, state: (_ for _ in ()).throw(OSError(28, "full")))
        world.answer({**FOUND, "at_s": world.now_s})
    assert world.tuner.wanted() == BASE
    assert "nothing is changed: full" in world.news()[0][1]


def test_ended_jobs_wait_for_a_disk_that_is_full_and_are_written_once(world, tmp_path, monkeypatch):
    world.cycle(ended(1))
    with monkeypatch.context() as patch:
        patch.setattr(WeeksFile, "add", lambda self, jobs: (_ for _ in ()).throw(OSError(28, "full")))
        world.tuner.look()
        world.tuner.look()
    assert [detail for kind, detail in world.news()] == ["weeks.jsonl cannot be written: full"]
    world.cycle(ended(2, 60))
    world.tuner.look()
    world.tuner.look()
    cluster = FakeCluster().observe().cluster
    assert [each.job.id for each in WeeksFile(tmp_path / "weeks.jsonl").read(cluster)] == [1, 2]
    assert (tmp_path / "weeks.jsonl").read_text().count("\n") == 2
    assert [each.job.id for each in world.tuner.recent()] == [1, 2]


def test_the_thread_goes_on_after_whatever_a_look_raises_and_ends_the_process(world, monkeypatch):
    looks = []

    def look():
        looks.append(1)
        raise RuntimeError("broken")

    world.cycle()
    world.tuner.look()
    monkeypatch.setattr(of_tuner, "LOOK_S", 0.01)
    monkeypatch.setattr(world.tuner, "look", look)
    with tuning(world.tuner):
        until = time.monotonic() + 20
        while len(looks) < 3 and time.monotonic() < until:
            time.sleep(0.01)
    assert len(looks) >= 3
    assert world.processes[0].killed


# ------------------------------------------------------------------------------------------------ the loop's side


class Wishes:
    """Stands for a tuner that wants a policy."""

    def __init__(self, spec):
        self.spec, self.told = spec, None

    def news(self):
        return []

    def wanted(self):
        return self.spec


def changing(wishes, made):
    def make(spec):
        made.append(spec)
        return spec.build(), InForce(spec)

    return Changing(wishes, make)


def test_the_policy_changes_between_two_cycles_and_every_round_is_decided_again_from_the_journal(tmp_path):
    cluster, wishes, made = FakeCluster(), Wishes(PolicySpec("easy")), []
    cluster.submit(*(a_job(id, units=3, walltime_s=50 * id) for id in range(1, 7)))
    spec = PolicySpec("easy")
    bridge = a_bridge(tmp_path, cluster, policy=spec.build(), policy_spec=spec)
    bridge.changing = changing(wishes, made)
    bridge.cycle()
    wishes.spec = PolicySpec("list-saf")
    report = bridge.cycle()
    wishes.spec = PolicySpec("easy")
    bridge.cycle()
    assert [str(each.dispatcher) for each in made] == ["list-saf", "easy"]
    assert [event.kind for event in bridge.journal.events(kind="in_force")] == ["in_force", "in_force"]
    assert report.result == "ok"
    records = [bridge.journal.read(number) for number in bridge.journal.numbers()]
    assert [record.policy.dispatcher for record in records] == ["easy", "list-saf", "easy"]
    assert all(decide_again(record).same for record in records)


def test_a_policy_that_cannot_be_made_is_told_once_and_the_old_one_decides(tmp_path):
    wishes, made = Wishes(PolicySpec("nobody")), []
    bridge = a_bridge(tmp_path, FakeCluster())
    bridge.changing = changing(wishes, made)
    reports = [bridge.cycle() for _ in range(3)]
    assert [report.result for report in reports] == ["ok"] * 3
    told = [each for report in reports for each in report.happenings if each.kind == "tuning_failed"]
    assert len(told) == 1
    assert "nobody" in told[0].detail
    assert len(made) == 1


def test_a_tuner_that_raises_fails_no_more_than_its_cycle_and_jobs_start(tmp_path):
    cluster = FakeCluster()
    cluster.submit(a_job(1))
    bridge = a_bridge(tmp_path, cluster)

    class Broken(Wishes):
        def news(self):
            raise RuntimeError("broken")

    bridge.changing = Changing(Broken(None), lambda spec: None)
    report = bridge.cycle()
    assert report.starts.keys() == {1}


def test_estimates_are_made_anew_by_the_new_predictor():
    policy = Policy(WalltimePredictor(), FirstFit())
    policy._estimates[1] = 5  # noqa: SLF001
    other = PolicySpec("easy", "last-two").build()
    policy.become(other)
    assert (policy.predictor, policy.dispatcher, policy.overrun) == (other.predictor, other.dispatcher, other.overrun)
    assert policy._estimates == {}  # noqa: SLF001


# ---------------------------------------------------------------------------------------------- settings and doctor


def test_on_and_off_are_words_although_yaml_reads_them_as_truths(tmp_path):
    path = tmp_path / "bridge.yaml"
    for word in ("off", "advise", "on"):
        path.write_text(f"adapter: mock\ntune: {{mode: {word}}}\n")
        assert load(path).tune.mode == word
    path.write_text("adapter: mock\ntune: {mode: perhaps}\n")
    with pytest.raises(SettingsError, match=r"bridge.yaml:2: tune\.mode"):
        load(path)


def told(tmp_path, mode="on", **policy):
    settings = {"adapter": "mock", "state_dir": tmp_path, "metrics": {"port": 0}, "tune": {"mode": mode}}
    return prepared(Settings.model_validate({**settings, "policy": policy}))


def test_a_tuner_beside_another_dispatcher_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"tune\.mode: on: tunes lookahead alone, and the dispatcher is easy"):
        told(tmp_path, dispatcher="easy")


def test_what_the_tuner_has_changed_is_in_force_after_a_restart_and_told_with_its_source(tmp_path):
    base = told(tmp_path).in_force.policy
    tuned = replace(base, predictor="last-two", dispatcher_settings={**base.dispatcher_settings, "objective": "af"})
    TuningFile(tmp_path / "tuning.json").write(TuningState(said=str(base), tuned=tuned))
    ready = told(tmp_path)
    assert ready.in_force.policy == tuned
    rows = {row.name: (row.value, row.source) for row in ready.in_force.rows}
    assert rows["policy.dispatcher_settings.objective"] == ("af", "tuner")
    assert rows["policy.predictor"] == ("last-two", "tuner")
    assert rows["policy.dispatcher_settings.horizon"] == (100, "dispatcher")
    assert told(tmp_path, mode="advise").in_force.policy == base
    assert told(tmp_path, goal="waits").in_force.policy != tuned


def test_a_tuned_policy_that_can_no_longer_be_made_is_left(tmp_path):
    base = told(tmp_path).in_force.policy
    TuningFile(tmp_path / "tuning.json").write(TuningState(said=str(base), tuned=PolicySpec("gone")))
    assert told(tmp_path).in_force.policy == base


# --------------------------------------------------------------------------------------------------- the real process


def request_of(folder, **facts):
    workload = weeks(days=14, jobs_a_day=30)
    file = WeeksFile(folder / "weeks.jsonl")
    file.add([(EndedJob(e.job, e.job.submit_s, e.job.submit_s + e.run_s), "all") for e in workload.jobs])
    plain = {"dispatcher": "lookahead", "predictor": "walltime", "dispatcher_settings": {}, "predictor_settings": {}}
    return {
        "now_s": 14 * 86400, "weeks_file": str(file.path), "cluster": of_tuner.cluster_to_json(workload.cluster),
        "weights": {"mean_wait": 1.0}, "name": "weights", "limits": {}, "present": plain, "base": plain,
        "since_s": None, "weeks": 2.0, "window_days": 3.5, "cpu_s": 600, "memory_mib": 1024, **facts,
    }  # fmt: skip


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(of_replays, "candidates", lambda present: [present, OTHER])


def test_the_process_answers_what_the_tuner_understands(tmp_path, few):
    found = of_tuner.finding_of(json.loads(json.dumps(tuning_process.answer(request_of(tmp_path)))))
    assert found.verdict in ("better", "unclear", "keep")
    assert found.came is None
    assert found.at_s == 14 * 86400


def test_a_change_is_judged_on_the_days_since(tmp_path, few):
    changed = {**FOUND["chosen"]}
    content = tuning_process.answer(request_of(tmp_path, present=changed, since_s=86400))
    assert 0.3 < content["came"] < 1.5
    same = tuning_process.answer(request_of(tmp_path, since_s=86400))
    assert same["came"] == 1.0
    assert tuning_process.answer(request_of(tmp_path, since_s=13 * 86400))["came"] is None


def test_without_jobs_it_says_so(tmp_path):
    request = request_of(tmp_path, weeks_file=str(tmp_path / "none"))
    assert tuning_process.answer(request) == {"error": "no job has ended yet"}


def test_a_real_process_gives_way_and_answers_by_a_file(tmp_path):
    asked, result = tmp_path / "asked.json", tmp_path / "result.json"
    asked.write_text(json.dumps(request_of(tmp_path, weeks_file=str(tmp_path / "none"))))
    process = of_tuner.started(asked, result)
    assert not process.alive(120)
    assert json.loads(result.read_text()) == {"error": "no job has ended yet"}
    assert result.stat().st_mode & 0o777 == 0o600
    assert process.kill() == 0


@pytest.mark.parametrize(("facts", "status"), [({"cpu_s": 1}, -24), ({"memory_mib": 60}, 0)])
def test_the_kernel_keeps_the_budget(tmp_path, facts, status):
    asked, result = tmp_path / "asked.json", tmp_path / "result.json"
    asked.write_text(json.dumps(request_of(tmp_path, **facts)))
    process = of_tuner.started(asked, result)
    assert not process.alive(120)
    assert process.kill() in (status, -9, 1)
    assert not result.exists() or "error" in json.loads(result.read_text())


def test_limits_are_those_of_the_process_alone():
    assert resource.getrlimit(resource.RLIMIT_CPU)[0] in (-1, resource.RLIM_INFINITY)


def test_the_new_dispatcher_decides_in_a_process_of_its_own_once_that_has_begun(tmp_path):
    settings = Settings.model_validate(
        {"adapter": "mock", "state_dir": tmp_path, "metrics": {"port": 0}, "tune": {"mode": "on"}}
    )
    ready = assembly.prepared(settings)
    tuner = assembly.tuner_of(settings, ready)
    TuningFile(tmp_path / "tuning.json").write(TuningState(said=str(ready.in_force.policy), tuned=OTHER))
    tuner._state = tuner._file.read()  # noqa: SLF001
    changing, policy, cluster = assembly.changing_of(settings, ready, tuner), ready.policy, FakeCluster()
    cluster.submit(a_job(1))
    now, before, looks = ready.in_force, policy.dispatcher, 0
    while policy.dispatcher is before and looks < 6000:
        report = CycleReport(looks, "control", 0.0)
        now, looks = changing.look(policy, now, report), looks + 1
        time.sleep(0.02)
    try:
        assert looks > 1
        assert now.policy == OTHER
        assert report.in_force == now.deciding
        rows = {row.name: (row.value, row.source) for row in now.rows}
        assert rows["policy.dispatcher_settings.objective"] == ("slowdown", "tuner")
        bridge = a_bridge(tmp_path, cluster, policy=policy, in_force=now)
        report = bridge.cycle()
        assert (report.result, report.starts.keys()) == ("ok", {1})
        assert decide_again(bridge.journal.read(report.number)).same
    finally:
        policy.dispatcher.close()
