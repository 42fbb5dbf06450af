"""Damage every file of a bridge at random: no command ends in a traceback, and every held job is released.

CI runs a few fixed cases of each kind. CPSCHED_FUZZ_DAMAGES=2000 sets the number for each file.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from cpsched import plugin_discovery
from cpsched_bridge.cycle.bridge_loop import Bridge
from cpsched_bridge.program import bootstrap
from cpsched_bridge.settings import load_settings
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.corruption_checks import CorruptFileContent
from cpsched_bridge.store.lock_and_request_files import PauseFile
from cpsched_bridge.store.state_file import OtherStateFormat
from cpsched_bridge.telemetry import forecast_state
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from tests.bridges import a_bridge, a_report, memory_folder
from tests.fakes import FakePace
from tests.fuzz import stored
from tests.fuzz.command_line import deadline, invoke_catching
from tests.unit.deploy.deadman import DeadMan, Job

COUNT = int(os.environ.get("CPSCHED_FUZZ_DAMAGES", "6"))
FIRST = int(os.environ.get("CPSCHED_FUZZ_FIRST", "0"))
FILES = ("state.sqlite", "journal.sqlite", "heartbeat", "lock", "paused", "bridge-id", "beginning", "outlook")
LOGS = tuple(f"{name}-{end}" for name in FILES[:2] for end in ("wal", "shm"))
ALWAYS = (("status",), ("why", stored.OWN))
IN_TURN = (
    *(("why", 1), ("why", 7), ("why", "9_1"), ("journal", "show", 1), ("journal", "show", 8), ("journal", "replay")),
    *(
        ("journal", "list"),
        ("journal", "replay", "--all"),
        ("events",),
        ("events", "--job", stored.OWN),
        ("unmanaged",),
    ),
)


@pytest.fixture(scope="module")
def killed():
    """The folder of a bridge that was killed; every case damages a copy. In memory, where that can be."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            plugin_discovery, "entry_points", functools.cache(plugin_discovery.entry_points)
        )  # no case installs a package
        with memory_folder() as folder:
            yield stored.make(Path(folder) / "killed").parent


def damaged(killed: Path, name: str, number: int) -> tuple[Path, str]:
    """The settings of a copy in which one file is damaged, and how it is."""
    folder = killed.with_name(f"{name}-{number}")
    shutil.rmtree(folder, ignore_errors=True)
    config = stored.copied(killed, folder)
    path = folder / "state" / name
    if not path.exists():
        path.write_text('{"why": "maintenance"}' if name == "paused" else "compiles 3 of 40 kernels")
    return config, stored.damage(path, random.Random(f"{name} {number}"))


def tells(*arguments: object) -> str:
    """What is wrong with how a command ended; "" if it worked, or said in a line what cannot be read."""
    with deadline():
        result = invoke_catching(*arguments)
    if result.error is not None:
        return f"{arguments}: " + "".join(traceback.format_exception(result.error)[-12:])
    said = result.stdout + result.stderr
    if "Traceback" in said or result.exit_code not in (0, 1, 2):
        return f"{arguments}: exit code {result.exit_code}: {said}"
    if result.exit_code == 2 and not result.stderr.startswith("error: "):
        return f"{arguments}: not one line that says what is wrong: {result.stderr!r}"
    return ""


def release_all(config: Path) -> str:
    """What is wrong after `release-all --force`."""
    with deadline():
        result = invoke_catching("release-all", "--force", "--config", config)
    if result.error is not None:
        return "".join(traceback.format_exception(result.error)[-12:])
    if result.exit_code or stored.held(config):
        return f"exit code {result.exit_code}, still held {stored.held(config)}: {result.stdout}{result.stderr}"
    return ""


def start(config: Path) -> str:
    """What is wrong after a bridge has begun, cycled and stopped there."""
    settings = load_settings(config)
    backend = bootstrap.connect_backend(settings)
    with (
        deadline(),
        state_paths.open_ledger(settings) as ledger,
        state_paths.open_journal(settings, False) as journal,
    ):
        unused = a_bridge(config.parent / "unused", backend, pace=FakePace(cycles=3), **bare(settings))
        unused.close_files()
        reports: list[str] = []
        listeners = (lambda report: reports.append(report.result),)
        pause = PauseFile(settings.state_dir)
        parts = replace(unused.parts, ledger=ledger, journal=journal, pause=pause, listeners=listeners)
        problems = Bridge(parts).run()
    backend.close()
    if problems or set(reports) != {"ok"} or stored.held(config):
        return f"{reports}, {problems}, still held: {stored.held(config)}"
    if any(fake.starts > 2 for fake in backend.jobs.values()):
        return "a job was started twice"
    return ""


def start_or_refuse(config: Path) -> str:
    """What is wrong after a start. A ledger with other columns is refused, and `release-all` can read it."""
    try:
        return start(config)
    except OtherStateFormat:
        return ""


def recall(config: Path) -> str:
    """Return what is wrong with a forecaster that reads the file and writes it again."""
    path, forecaster = config.parent / "state" / "outlook", StartForecaster()
    with deadline():
        bootstrap.load_forecast_state(forecaster, path)
        forecaster(a_report(30_000))
        bootstrap.save_forecast_state(forecaster, path)
        try:
            forecast_state.forecast_state_from_json(forecast_state.read_forecast_state(path))
        except CorruptFileContent as error:
            return f"what is learned is not kept: {error}"
    return ""


def bare(settings) -> dict:
    return {name: getattr(settings, name) for name in ("mode", "adapter", "options")}


def wrong_after_damage(killed: Path, name: str, number: int) -> str:
    """Everything that is wrong beside a damaged file."""
    config, how = damaged(killed, name, number)
    (config.parent / "unused").mkdir()
    views = (*ALWAYS, *(IN_TURN[(2 * number + more) % len(IN_TURN)] for more in (0, 1)))
    found = [tells(*words, "--config", config) for words in views]
    other = stored.copied(config.parent, config.parent.with_name(f"{name}-{number}-other"))
    for act, where in (
        (release_all, config),
        (start_or_refuse, other),
        *([(recall, other)] if name == "outlook" else []),
    ):
        try:
            found.append(f"{act.__name__}: {wrong}" if (wrong := act(where)) else "")
        except Exception:
            found.append(f"{act.__name__}: {traceback.format_exc(limit=-6)}")
    told = "\n".join(filter(None, found))
    shutil.rmtree(config.parent)
    shutil.rmtree(other.parent)
    return f"{name} {number} ({how}): {told}" if told else ""


@pytest.mark.parametrize("name", [*FILES, *LOGS])
def test_damage_causes_no_traceback_and_jobs_are_released(killed, name):
    wrong = [found for number in range(FIRST, FIRST + COUNT) if (found := wrong_after_damage(killed, name, number))]
    assert not wrong, f"{len(wrong)} of {COUNT}:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("name", ["state.sqlite", "journal.sqlite"])
def test_deadman_releases_jobs_despite_damaged_files(killed, tmp_path, name):
    """The script itself, and the program that it asks, as processes."""
    for number in range(FIRST, FIRST + max(1, COUNT // 100)):
        config, how = damaged(killed, name, number)
        (tmp_path / str(number)).mkdir()
        deadman = DeadMan(tmp_path / str(number))
        deadman.put(jobs=[Job("1"), Job("3", reason="JobHeldAdmin", admin_comment="")])
        ledger = f"{sys.executable} -m cpsched_bridge.program.cli release-all --force --config {config}"
        told = deadman.run("--now", CPSCHED_DEADMAN_LEDGER=ledger, PYTHONPATH=os.getcwd())
        assert "Traceback" not in told.words
        assert (told.status, stored.held(config)) == (0, []), f"{number} ({how}): {told.words}"
