"""The tuner beside a bridge process, over a site whose days pass in seconds: what becomes of its changes and of it."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import yaml

from cpsched.model import EndedJob
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.program.assembly import prepared
from cpsched_bridge.settings import load
from cpsched_bridge.store.places import opened_journal
from cpsched_bridge.store.redecide import decide_again
from cpsched_bridge.store.tuning import DAY_S, TuningEntry, TuningFile, TuningState
from cpsched_bridge.store.weeks import WeeksFile
from tests import warm
from tests.patience import ENOUGH_S
from tests.unit.sim.tuning.weeks import as_swf, weeks

BRIDGE = """
import sys
from cpsched_bridge.program import cli, tuner

tuner.LOOK_S = 0.2
sys.argv = ["cpsched", "bridge", "--config", sys.argv[1]]
cli.app()
"""
"""The program as it is, whose tuner looks more often."""
PAST_DAYS, SITE_DAYS = 28, 14
SPEED = 120.0
"""An hour at the site takes half a minute, so that the tuner is asked again while a test waits."""
WORST = {"objective": "awf"}
"""An objective that lets the jobs of these tests wait for longer than others do."""
BUDGET = {"cpu_s": 600, "memory_mib": 1024}


def written(folder, policy, **tune):
    """A settings file for a bridge over a site that begins where the weeks end that the bridge has seen before."""
    whole, from_s, state = weeks(days=PAST_DAYS + SITE_DAYS, jobs_a_day=50), PAST_DAYS * DAY_S, folder / "state"
    past = [entry for entry in whole.jobs if entry.job.submit_s + entry.run_s < from_s]
    state.mkdir()
    WeeksFile(state / "weeks.jsonl").add(
        [(EndedJob(e.job, e.job.submit_s, e.job.submit_s + e.run_s), "all") for e in past]
    )
    to_come = [entry for entry in whole.jobs if entry.job.submit_s >= from_s]
    (folder / "site.swf").write_text(as_swf(replace(whole, jobs=to_come)))
    path = folder / "bridge.yaml"
    settings = {
        "adapter": "mock",
        "mode": "control",
        "state_dir": str(state),
        "options": {"trace": str(folder / "site.swf"), "system": "pool", "speed": SPEED},
        "cycle": {"interval_s": 0.3},
        "policy": policy,
        "tune": {"mode": "on", "every_h": 1.0} | BUDGET | tune,
        "metrics": {"port": 0},
    }
    path.write_text(yaml.safe_dump(settings))
    return path


@contextmanager
def a_bridge_process(config):
    """A bridge process whose log is a file."""
    log = config.parent / "log"
    with log.open("wb") as opened:
        process = subprocess.Popen([sys.executable, "-c", BRIDGE, str(config)], stdout=opened, stderr=opened)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENOUGH_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def wait_for(condition, process):
    until = time.monotonic() + ENOUGH_S
    while not (found := condition()):
        assert process.poll() is None, "the bridge has ended"
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)
    return found


def state_of(config):
    return TuningFile(config.parent / "state" / "tuning.json").read()


def events(config, kind):
    """What the journal says of one kind; nothing before there is a journal."""
    with suppress(FileNotFoundError, BridgeError), opened_journal(load(config)) as journal:
        return [event.detail for event in journal.events(kind=kind)]
    return []


def tuner_of(bridge):
    """The id of the tuner's process among the bridge's children; None: there is none."""
    for children in Path(f"/proc/{bridge.pid}/task").glob("*/children"):
        for child in children.read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                if b"cpsched_bridge.program.tuning_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
    return None


def metrics(config):
    """What the bridge's endpoint says, by series."""
    url = re.search(r"http://[^\s\"']+metrics", (config.parent / "log").read_text())[0]
    lines = urllib.request.urlopen(url, timeout=60).read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def cycles(config):
    """How many cycles went well."""
    return sum(value for name, value in metrics(config).items() if name == 'cpsched_cycles_total{result="ok"}')


def shown(config, command):
    done = warm.cpsched(command, "--config", str(config), timeout=ENOUGH_S)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_a_killed_tuner_costs_no_cycle_and_the_next_one_changes_the_policy(tmp_path):
    config = written(tmp_path, {"dispatcher_settings": WORST}, weeks=2.0)
    with a_bridge_process(config) as bridge:
        tuner = wait_for(lambda: tuner_of(bridge), bridge)
        limits = wait_for(lambda: f"{BUDGET['cpu_s']} " in (text := limits_of(tuner)) and text, bridge)
        assert re.search(r"Max cpu time +600 +605 ", limits)
        assert re.search(rf"Max data size +{1024 * 2**20} +{1024 * 2**20} ", limits)
        assert os.getpriority(os.PRIO_PROCESS, tuner) == 19
        os.kill(tuner, signal.SIGKILL)
        (why,) = wait_for(lambda: events(config, "tuning_failed"), bridge)
        assert why == "its process ended without an answer (exit status -9)"
        before = cycles(config)
        wait_for(lambda: cycles(config) > before + 5, bridge)
        assert metrics(config)["cpsched_tuned"] == 0.0

        (told,) = wait_for(lambda: events(config, "tuned"), bridge)
        wait_for(lambda: len(events(config, "in_force")) == 2, bridge)
        changes, expected = re.fullmatch(r"(.*objective=.*): (-\d+ %) is expected", told).groups()
        assert f"changed {changes} (expected {expected}, not judged yet)" in shown(config, "status")
        state = state_of(config)
        objective = state.tuned.dispatcher_settings["objective"]
        assert f"policy.dispatcher_settings.objective {objective} tuner" in shown(config, "policy")
        assert metrics(config)["cpsched_tuned"] == 1.0
        before = cycles(config)
        wait_for(lambda: cycles(config) > before + 5, bridge)
    assert objective != WORST["objective"]
    assert state.expected < 0.97
    assert [entry.kind for entry in state.history] == ["tuned"]
    with opened_journal(load(config)) as journal:
        records = [journal.read(number) for number in journal.numbers()]
    assert all(decide_again(record).same for record in records)


def test_a_change_that_came_out_worse_is_taken_back(tmp_path):
    config = written(tmp_path, {}, weeks=1.0)
    base = prepared(load(config)).in_force.policy
    tuned = replace(base, dispatcher_settings={**base.dispatcher_settings, **WORST})
    since_s = (PAST_DAYS - 8) * DAY_S
    made = TuningEntry(since_s, "tuned", "objective=awf", 0.8)
    file = TuningFile(tmp_path / "state" / "tuning.json")
    file.write(TuningState(str(base), tuned, "objective=awf", since_s, 0.8, history=(made,)))
    with a_bridge_process(config) as bridge:
        (told,) = wait_for(lambda: events(config, "tuned_back"), bridge)
        wait_for(lambda: len(events(config, "in_force")) == 2, bridge)
        assert re.fullmatch(r"taken back, objective=awf: expected -20 %, came \+\d+ %", told)
        assert metrics(config)["cpsched_tuned"] == 0.0
        assert "policy.dispatcher_settings.objective default dispatcher" in shown(config, "policy")
    state = file.read(base)
    assert (state.tuned, [*state.refused]) == (None, [str(tuned)])
    assert [entry.kind for entry in state.history] == ["tuned", "tuned_back"]
    assert state.history[1].came > 1.02
    assert state.history[1].expected == 0.8


def limits_of(process):
    """What the kernel keeps of a process; nothing once it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/limits").read_text()
    return ""
