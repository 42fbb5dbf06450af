"""The dead-man script with stand-in commands: when it acts, on which jobs, and its messages."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cpsched_bridge.adapters.slurm.translation import slurm_states
from tests.patience import ENOUGH_S, until
from tests.unit.deploy.deadman import SCRIPT, DeadMan, Job, Told


@pytest.fixture
def deadman(tmp_path: Path) -> DeadMan:
    return DeadMan(tmp_path)


# When it acts


@pytest.mark.parametrize("age_s", [0, 30, 58, -30, -58])
def test_recent_heartbeat_changes_nothing(deadman: DeadMan, age_s: int) -> None:
    assert deadman.put(jobs=[Job("7")]).beat(age_s).run() == Told(0, "", [], {"7": Job("7")})


@pytest.mark.parametrize(
    ("age_s", "says"),
    [(63, "the heartbeat is 6"), (100_000, "the heartbeat is 10000"), (-70, "s in the future and does not change")],
)
def test_stale_heartbeat_releases_jobs(deadman: DeadMan, age_s: int, says: str) -> None:
    """Also one in the future: the clock was set back after the bridge had died."""
    told = deadman.put(jobs=[Job("7")]).beat(age_s).run()
    assert says in told.words
    assert (told.status, told.kept) == (0, set())


def test_unreadable_heartbeat_is_stale_and_reported(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")]).beat(0)
    deadman.command("stat", "#!/bin/sh\necho 'stat: cannot statx: Permission denied' >&2\nexit 1\n")
    told = deadman.run()
    assert told.words.startswith(f"the heartbeat {deadman.heartbeat} cannot be read by ")
    assert told.kept == set()


@pytest.mark.parametrize(
    ("age_s", "said"),
    [
        (5000, "has changed: the bridge is running again, or the clock was set"),
        (-5000, "has changed: the clock was set"),
    ],
)
def test_heartbeat_beating_during_confirmation_means_alive(deadman: DeadMan, age_s: int, said: str) -> None:
    """The bridge is back, or lives and the clock was set."""
    deadman.put(jobs=[Job("7")]).beat(age_s)
    timer = threading.Timer(1.5, deadman.beat, (0,))
    timer.start()
    told = deadman.run(CPSCHED_DEADMAN_CONFIRM_S="20")
    timer.join()
    assert said in told.words
    assert (told.status, told.kept) == (0, {"7"})


def test_heartbeat_still_during_confirmation_is_stale(deadman: DeadMan) -> None:
    assert deadman.put(jobs=[Job("7")]).beat(5000).run(CPSCHED_DEADMAN_CONFIRM_S="2").kept == set()


CLAIM = "bridge=0a1b&run=2c3d&beat={}&on=login2:/var/lib/cpsched"


@pytest.mark.parametrize("field", ["Comment", "BurstBuffer"])  # Slurm 22.05 has no Comment
def test_leaves_marked_jobs_to_other_living_bridge(deadman: DeadMan, field: str) -> None:
    told = deadman.put(
        lease_field=field,
        jobs=[Job("7"), Job("8", 0.5, "None", comment="bridge:pinned()", reqnodes="n1"), Job("9", admin_comment="")],
        claims=[CLAIM.format(1), CLAIM.format(1), CLAIM.format(2)],
    ).run()
    assert "another bridge is in control and keeps the marked jobs: login2:/var/lib/cpsched" in told.words
    assert (told.kept, told.jobs["8"].reqnodes) == ({"7", "9"}, "n1")


@pytest.mark.parametrize("takes_over", [True, False])
def test_waits_for_the_standby_that_the_own_lease_names(deadman: DeadMan, takes_over: bool) -> None:
    own = "bridge=ffff&run=2c3d&beat=7&on=login1:/var/lib/cpsched&epoch=30&standby=0a1b"
    deadman.put(jobs=[Job("7")], claims=[own, own, CLAIM.format(1) if takes_over else own])
    (deadman.heartbeat.parent / "bridge-id").write_text('{"bridge": "ffff", "made": ["host", "/path", 7]}')
    told = deadman.run(CPSCHED_DEADMAN_CLAIM_S="3")
    assert told.kept == ({"7"} if takes_over else set())
    assert ("another bridge is in control" in told.words) == takes_over


@pytest.mark.parametrize(
    ("claims", "own"),
    [
        ([], ""),
        ([CLAIM.format(1)], ""),
        ([CLAIM.format(1), CLAIM.format(2)], '{"bridge": "0a1b", "made": ["host", "/path", 7]}'),
        (["words of somebody else", "other words"], ""),
    ],
)
def test_dead_own_or_missing_lease_leaves_nothing_held(deadman: DeadMan, claims: list[str], own: str) -> None:
    deadman.put(jobs=[Job("7")], claims=claims)
    (deadman.heartbeat.parent / "bridge-id").write_text(own)
    told = deadman.run(CPSCHED_DEADMAN_CLAIM_S="2")
    assert told.kept == set()
    assert "another bridge" not in told.words


def test_now_option_ignores_heartbeat(deadman: DeadMan) -> None:
    told = deadman.put(jobs=[Job("7")]).beat(0).run("--now")
    assert (told.words, told.kept) == ("released 1 held jobs, cleared 0 node lists\n", set())


def test_loop_repeats_and_ends_on_signal(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")]).beat(0)
    environment = deadman.environment(CPSCHED_DEADMAN_EVERY_S="0.1")
    process = subprocess.Popen(["bash", str(SCRIPT), "--loop"], env=environment, stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    deadman.heartbeat.unlink()
    assert "no heartbeat" in process.stdout.readline()
    assert "released 1 held jobs" in process.stdout.readline()
    process.terminate()
    assert process.wait(ENOUGH_S) == 0


def test_loop_ends_at_once_and_running_check_completes(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")])
    asked, answers = deadman.folder / "asked", deadman.folder / "answers"
    deadman.command("squeue-in-time", (deadman.path / "squeue").read_text())
    wait = f"touch {asked}\nuntil [ -e {answers} ]; do sleep 0.05; done"
    deadman.command("squeue", f'#!/bin/sh\n{wait}\nexec squeue-in-time "$@"\n')
    process = subprocess.Popen(["bash", str(SCRIPT), "--loop"], env=deadman.environment(), stdout=subprocess.DEVNULL)
    until(asked.exists)
    process.terminate()
    assert process.wait(ENOUGH_S) == 0
    answers.touch()
    until(lambda: "scontrol release 7" in deadman.state.read_text())


def test_other_arguments_print_usage(deadman: DeadMan) -> None:
    told = deadman.run("--help")
    assert told.status == 2
    assert "cpsched-deadman --now" in told.words
    assert told.commands == []


# On which jobs

OURS = {
    "held by the plugin": Job("1"),
    "held by the plugin, waiting for another job": Job("2", reason="Dependency"),
    "held again by the bridge": Job("3", reason="JobHeldAdmin", comment="bridge:wait"),
    "held again by the bridge after a requeue": Job("4", reason="JobHeldAdmin", restartcnt=2, comment="bridge:wait x"),
    "with words of its owner": Job("5", comment="my bridge:words user-held"),
}
NOT_OURS = {
    "not held": Job("1", priority=0.00001, reason="Priority"),
    "held by its owner": Job("1", comment="bridge:user-held mine"),
    "held by an administrator": Job("1", reason="JobHeldAdmin", comment="bridge:admin-held"),
    "held by both": Job("1", reason="JobHeldAdmin", comment="bridge:wait bridge:user-held bridge:admin-held"),
    "held by an administrator of whom the plugin did not hear": Job("1", reason="JobHeldAdmin"),
    "requeued on hold": Job("1", restartcnt=1),
    **{
        f"held by Slurm: {reason}": Job("1", reason=reason, comment="bridge:wait")
        for reason in sorted(slurm_states.SLURM_HOLD_REASONS)
    },
    "submitted while the plugin was off": Job("1", admin_comment=""),
    "a mark that only resembles ours": Job("1", admin_comment="bridge:waits"),
    "another mark": Job("1", admin_comment="bridge:wait x"),
    "a forged mark beside an administrator's hold": Job("1", reason="JobHeldAdmin", comment="x\xa0bridge:wait"),
    "a forged comment and no mark": Job("1", admin_comment="", reason="JobHeldAdmin", comment="bridge:wait"),
    "an owner's hold behind a newline": Job("1", comment="x\nbridge:user-held"),
    "an administrator's hold behind a tab": Job("1", comment="x\tbridge:admin-held\ty"),
}


def test_releases_jobs_waiting_for_bridge_and_keeps_all_others(deadman: DeadMan) -> None:
    others = {str(id): replace(job, jobarrayid=str(id)) for id, job in enumerate(NOT_OURS.values(), 101)}
    told = deadman.put(jobs=[*OURS.values(), *others.values()]).run()
    assert {id: job for id, job in told.jobs.items() if job.held or id in others} == others
    assert "released 5 held jobs, cleared 0 node lists" in told.words


@pytest.mark.parametrize(
    ("jobs", "plugin", "kept"),
    [
        # A mark counts only between single blanks.
        *(([Job("1", reason="JobHeldAdmin", comment=comment)], True, {"1"})
          for comment in ("bridge:wait\x1c", "bridge:wait\x85", "BRIDGE:WAIT", "a\nbridge:wait\nb")),
        # Without the plug-in, users can write marks. The plug-in's own hold at submission still counts.
        ([Job("1", reason="JobHeldAdmin", comment="bridge:wait"), Job("2")], False, {"1"}),
        # Newlines in a comment look like further lines of squeue.
        ([Job("1", comment="bridge:user-held x\n2           0.0000 JobHeldUser 0 bridge:wait\n"),
          Job("2", comment="bridge:user-held")], True, {"1", "2"}),
        ([Job("1", comment="x" * 70_000 + " bridge:admin-held")], True, {"1"}),
    ],
)  # fmt: skip
def test_comment_forges_no_mark_and_hides_none(deadman: DeadMan, jobs: list[Job], plugin: bool, kept: set[str]) -> None:
    assert deadman.put(jobs=jobs, plugin=plugin).run().kept == kept


# Node lists


def test_restores_node_lists_changed_by_bridge(deadman: DeadMan) -> None:
    jobs = [
        Job("1", comment="bridge:pinned() mine", reqnodes="n3"),
        Job("2", comment="bridge:asked(n[1-2]) bridge:pinned(n[1-2])", reqnodes="n3"),
        Job("3", priority=0.5, reason="Resources", comment="bridge:pinned()", reqnodes="n3"),
        Job("4", comment="bridge:user-held bridge:pinned(n2)", reqnodes="n3"),
        Job("5", priority=0.5, admin_comment="", comment="bridge:pinned()", reqnodes="n3"),
    ]
    told = deadman.put(jobs=jobs).run()
    assert "released 2 held jobs, cleared 5 node lists" in told.words
    assert [job.reqnodes for job in told.jobs.values()] == ["", "n[1-2]", "", "n2", ""]
    assert told.kept == {"4"}
    orders = [command for command in told.commands if command.startswith("scontrol ") and "show" not in command]
    assert orders[-1] == "scontrol release 1,2", "a released job must not start on a stale list"


@pytest.mark.parametrize("list_", ["n1\nrelease 9", "n1 n2", "n1;x", "$(touch x)", "n1'"])
def test_invalid_node_list_never_reaches_command(deadman: DeadMan, list_: str) -> None:
    told = deadman.put(jobs=[Job("1", comment=f"bridge:pinned({list_})")]).run()
    assert not [command for command in told.commands if "update" in command or "9" in command.split()]
    assert told.kept == set()


def test_node_list_never_seen_by_plugin_belongs_to_owner(deadman: DeadMan) -> None:
    job = Job("1", priority=0.5, admin_comment="", comment="bridge:pinned()", reqnodes="n3")
    assert deadman.put(jobs=[job], plugin=False).run().jobs == {"1": job}


# Arrays


def test_names_tasks_individually(deadman: DeadMan) -> None:
    """Under the bare number of its array a change would be meant for running tasks too, and Slurm refuses it."""
    jobs = [
        Job("9_2", reason="JobHeldAdmin", restartcnt=1, comment="bridge:wait bridge:pinned()", reqnodes="n2"),
        Job("11_[3,5-8%2]", comment="bridge:pinned()", reqnodes="n2"),
        Job("12_[1-4:2,7,12-17:5]"),
        Job("13"),
    ]
    told = deadman.put(jobs=jobs).run()
    assert "released 4 held jobs, cleared 2 node lists" in told.words
    assert (told.status, told.kept) == (0, set())
    assert {"scontrol update JobId=9_2 ReqNodeList=", "scontrol update JobId=11_[3,5-8] ReqNodeList="} <= set(
        told.commands
    )
    assert {"scontrol release 9_2,13", "scontrol release 11_[3,5-8]", "scontrol release 12_[1,3,7,12,17]"} <= set(
        told.commands
    )


def test_squeue_prints_full_array_names(deadman: DeadMan) -> None:
    """By default it cuts them off after 64 characters."""
    deadman.command("squeue", '#!/bin/sh\necho "$SLURM_BITSTR_LEN $LC_ALL" >>"$0.log"\n')
    deadman.run()
    assert (deadman.path / "squeue.log").read_text() == "0 C\n"


# What it says

ASKED = Job("1", admin_comment="", reason="JobHeldAdmin")
"""Perhaps the bridge's own hold, which the ledger knows."""
PINNED = [Job(str(n), comment="bridge:pinned()", reqnodes="n1") for n in range(1, 16)]
LEDGER = "cpsched release-all --force"


@pytest.mark.parametrize(
    ("jobs", "world", "status", "kept", "said"),
    [
        ([Job("7")], {}, 0, set(), ["no heartbeat at ", "\nreleased 1 held jobs, cleared 0 node lists\n"]),
        # It reports the actual results.
        (PINNED, {"stubborn": [str(n) for n in range(3, 16)]}, 1, {str(n) for n in range(3, 16)},
         ["released 2 held jobs, cleared 2 node lists", "still held: 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, and 3 more\n",
          "node list not cleared: 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, and 3 more\n"]),
        ([Job("3", priority=0.5, reason="Resources", comment="bridge:pinned()", reqnodes="n1")], {"stubborn": ["3"]}, 1,
         set(), ["released 0 held jobs, cleared 0 node lists\n", "node list not cleared: 3\n"]),
        ([Job("5")], {"stubborn": ["5"]}, 1, {"5"}, ["still held: 5\n"]),
        ([Job("1")], {"squeue_fails": 1}, 1, {"1"}, ["squeue failed: no job was released"]),
        ([Job("1")], {"squeue_good": 1}, 1, set(),
         ["sent releases for 1 jobs to Slurm; squeue failed, so their effect is unknown"]),
        # It asks the ledger about holds that may be its own.
        ([ASKED, Job("2")], {}, 0, {"1"},
         ["scontrol release 2\n", LEDGER, "released 1 held jobs", "the ledger: the bridge no longer holds any job"]),
        ([ASKED, Job("2")], {"ledger_works": False}, 1, {"1"}, ["release from the ledger failed: storage error"]),
        ([Job("7"), replace(ASKED, jobarrayid="9")], {"claims": [CLAIM.format(1), CLAIM.format(2)]}, 0, {"7", "9"},
         [LEDGER, "from the ledger: the bridge no longer holds any job"]),
    ],
)  # fmt: skip
def test_reports_results(
    deadman: DeadMan, jobs: list[Job], world: dict[str, object], status: int, kept: set[str], said: list[str]
) -> None:
    told = deadman.put(jobs=jobs, **world).run()
    text = told.words + "".join(f"{command}\n" for command in told.commands)
    assert (told.status, told.kept) == (status, kept)
    assert [words for words in said if words not in text] == []


def test_asks_ledger_after_releases(deadman: DeadMan) -> None:
    commands = deadman.put(jobs=[ASKED, Job("2")]).run().commands
    assert commands.index(LEDGER) > commands.index("scontrol release 2")


def test_prints_nothing_about_jobs_without_work(deadman: DeadMan) -> None:
    told = deadman.put(jobs=[Job("1", priority=0.5)]).run()
    assert told.words == f"no heartbeat at {deadman.heartbeat}\n"
    assert len([command for command in told.commands if command.startswith("squeue")]) == 1


def test_releases_many_jobs_in_few_commands(deadman: DeadMan) -> None:
    told = deadman.put(jobs=[Job(str(n)) for n in range(1, 1202)]).run()
    assert "released 1201 held jobs" in told.words
    assert len([command for command in told.commands if "release" in command]) == 3


@pytest.mark.parametrize("case", ["held by its owner", "held by an administrator", "not held"])
def test_does_not_ask_ledger_about_other_holds(deadman: DeadMan, case: str) -> None:
    deadman.put(jobs=[NOT_OURS[case]])
    assert not [command for command in deadman.run().commands if command.startswith("cpsched")]


@pytest.mark.parametrize(
    ("command", "said"),
    [("", ""), ("no-such-command release-all", "not compared with the ledger: there is no program no-such-command")],
)
def test_missing_command_skips_only_ledger(deadman: DeadMan, command: str, said: str) -> None:
    told = deadman.put(jobs=[Job("1", admin_comment="", reason="JobHeldAdmin"), Job("2")]).run(
        CPSCHED_DEADMAN_LEDGER=command
    )
    assert (told.status, told.kept, "ledger" in told.words) == (0, {"1"}, bool(said))
    assert said in told.words


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_root_opens_ledger_as_folder_owner(deadman: DeadMan) -> None:
    """Files that root makes there could not be opened by the bridge afterwards."""
    os.chown(deadman.heartbeat.parent, 65534, 65534)
    log = deadman.path / "setpriv.log"
    deadman.command("setpriv", f"#!/bin/sh\necho $@ >>'{log}'\nwhile [ $1 != -- ]; do shift; done\nshift\nexec $@\n")
    told = deadman.put(jobs=[Job("1", admin_comment="", reason="JobHeldAdmin")]).run()
    assert "cpsched release-all --force" in told.commands
    assert log.read_text() == "--reuid nobody --regid nobody --init-groups -- cpsched release-all --force\n"


# A full disk


def test_works_on_full_disk(deadman: DeadMan) -> None:
    """No file may grow; more jobs than fit in a pipe, which a here-string would put in a file."""
    names = [str(n) for n in range(100_000, 105_200)]
    told = deadman.put(jobs=[Job(name, comment="bridge:pinned()", reqnodes="n1") for name in names[:10]]).run(
        before="ulimit -S -f 0", stdout="/dev/full"
    )
    assert told.kept == set()
    told = deadman.put(jobs=[Job(name) for name in names]).run(before="ulimit -S -f 0")
    assert told.kept == set()
    assert "released 5200 held jobs" in told.words


def test_leaves_no_file(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")])
    before = set(deadman.folder.rglob("*"))
    deadman.run(TMPDIR=str(deadman.folder))
    assert set(deadman.folder.rglob("*")) == before
