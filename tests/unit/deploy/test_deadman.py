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


def kept(told: Told) -> set[str]:
    return {name for name, job in told.jobs.items() if job.held}


# When it acts


@pytest.mark.parametrize("age_s", [0, 30, 58, -30, -58])
def test_recent_heartbeat_changes_nothing(deadman: DeadMan, age_s: int) -> None:
    deadman.put(jobs=[Job("7")])
    deadman.beat(age_s)
    assert deadman.run() == Told(0, "", [], {"7": Job("7")})


@pytest.mark.parametrize(
    ("age_s", "says"),
    [(63, "the heartbeat is 6"), (100_000, "the heartbeat is 10000"), (-70, "s in the future and does not change")],
)
def test_stale_heartbeat_releases_jobs(deadman: DeadMan, age_s: int, says: str) -> None:
    """Also one in the future: the clock was set back after the bridge had died."""
    deadman.put(jobs=[Job("7")])
    deadman.beat(age_s)
    told = deadman.run()
    assert says in told.words
    assert (told.status, kept(told)) == (0, set())


def test_missing_heartbeat_is_stale(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")])
    told = deadman.run()
    assert told.words == f"no heartbeat at {deadman.heartbeat}\nreleased 1 held jobs, cleared 0 node lists\n"
    assert kept(told) == set()


def test_unreadable_heartbeat_is_stale_and_reported(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")])
    deadman.beat(0)
    deadman.command("stat", "#!/bin/sh\necho 'stat: cannot statx: Permission denied' >&2\nexit 1\n")
    told = deadman.run()
    assert told.words.startswith(f"the heartbeat {deadman.heartbeat} cannot be read by ")
    assert kept(told) == set()


@pytest.mark.parametrize("age_s", [-5000, 5000])
def test_heartbeat_beating_during_confirmation_means_alive(deadman: DeadMan, age_s: int) -> None:
    """The bridge is back, or lives and the clock was set."""
    deadman.put(jobs=[Job("7")])
    deadman.beat(age_s)
    timer = threading.Timer(1.5, deadman.beat, (0,))
    timer.start()
    told = deadman.run(CPSCHED_DEADMAN_CONFIRM_S="20")
    timer.join()
    said = {
        5000: "has changed: the bridge is running again, or the clock was set",
        -5000: "has changed: the clock was set",
    }
    assert said[age_s] in told.words
    assert (told.status, kept(told)) == (0, {"7"})


def test_heartbeat_still_during_confirmation_is_stale(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")])
    deadman.beat(5000)
    assert kept(deadman.run(CPSCHED_DEADMAN_CONFIRM_S="2")) == set()


CLAIM = "bridge=0a1b&run=2c3d&beat={}&on=login2:/var/lib/cpsched"


@pytest.mark.parametrize("field", ["Comment", "BurstBuffer"])  # Slurm 22.05 has no Comment
def test_leaves_marked_jobs_to_other_living_bridge(deadman: DeadMan, field: str) -> None:
    deadman.put(
        lease_field=field,
        jobs=[Job("7"), Job("8", 0.5, "None", comment="bridge:pinned()", reqnodes="n1"), Job("9", admin_comment="")],
        claims=[CLAIM.format(1), CLAIM.format(1), CLAIM.format(2)],
    )
    told = deadman.run()
    assert "another bridge is in control and keeps the marked jobs: login2:/var/lib/cpsched" in told.words
    assert kept(told) == {"7", "9"}
    assert told.jobs["8"].reqnodes == "n1"


def test_asks_ledger_for_own_jobs_with_other_bridge(deadman: DeadMan) -> None:
    asked = Job("9", reason="JobHeldAdmin", admin_comment="")
    deadman.put(jobs=[Job("7"), asked], claims=[CLAIM.format(1), CLAIM.format(2)])
    told = deadman.run()
    assert "cpsched release-all --force" in told.commands
    assert "from the ledger: the bridge no longer holds any job" in told.words
    assert kept(told) == {"7", "9"}


@pytest.mark.parametrize("takes_over", [True, False])
def test_waits_for_the_standby_that_the_own_lease_names(deadman: DeadMan, takes_over: bool) -> None:
    own = "bridge=ffff&run=2c3d&beat=7&on=login1:/var/lib/cpsched&epoch=30&standby=0a1b"
    deadman.put(jobs=[Job("7")], claims=[own, own, CLAIM.format(1) if takes_over else own])
    (deadman.heartbeat.parent / "bridge-id").write_text('{"bridge": "ffff", "made": ["host", "/path", 7]}')
    told = deadman.run(CPSCHED_DEADMAN_CLAIM_S="3")
    assert kept(told) == ({"7"} if takes_over else set())
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
    assert kept(told) == set()
    assert "another bridge" not in told.words


def test_now_option_ignores_heartbeat(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")])
    deadman.beat(0)
    told = deadman.run("--now")
    assert (told.words, kept(told)) == ("released 1 held jobs, cleared 0 node lists\n", set())


def test_loop_repeats_and_ends_on_signal(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")])
    deadman.beat(0)
    environment = deadman.environment(CPSCHED_DEADMAN_EVERY_S="0.1")
    process = subprocess.Popen(["bash", str(SCRIPT), "--loop"], env=environment, stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    deadman.heartbeat.unlink()
    assert process.stdout is not None
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
    deadman.put(jobs=[*OURS.values(), *others.values()])
    told = deadman.run()
    assert {id: job for id, job in told.jobs.items() if job.held or id in others} == others
    assert "released 5 held jobs, cleared 0 node lists" in told.words


def test_mark_counts_only_between_single_blanks(deadman: DeadMan) -> None:
    forged = ("bridge:wait\x1c", "bridge:wait\x85", "BRIDGE:WAIT", "a\nbridge:wait\nb")
    deadman.put(jobs=[Job(str(id), reason="JobHeldAdmin", comment=comment) for id, comment in enumerate(forged, 1)])
    assert kept(deadman.run()) == {"1", "2", "3", "4"}


def test_marks_are_ignored_without_plugin(deadman: DeadMan) -> None:
    """Users can write them; the plugin's own hold at submission still counts."""
    jobs = [Job("1", reason="JobHeldAdmin", comment="bridge:wait"), Job("2")]
    deadman.put(jobs=jobs, plugin=False)
    assert kept(deadman.run()) == {"1"}


def test_comment_cannot_imitate_another_job(deadman: DeadMan) -> None:
    """Newlines in it look like further lines of squeue."""
    line = "2           0.0000 JobHeldUser 0 bridge:wait"
    deadman.put(jobs=[Job("1", comment=f"bridge:user-held x\n{line}\n"), Job("2", comment="bridge:user-held")])
    told = deadman.run()
    assert kept(told) == {"1", "2"}
    assert not [command for command in told.commands if "release" in command or "update" in command]


def test_long_comment_hides_no_hold(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("1", comment="x" * 70_000 + " bridge:admin-held")])
    assert kept(deadman.run()) == {"1"}


# Node lists


def test_restores_node_lists_changed_by_bridge(deadman: DeadMan) -> None:
    jobs = [
        Job("1", comment="bridge:pinned() mine", reqnodes="n3"),
        Job("2", comment="bridge:asked(n[1-2]) bridge:pinned(n[1-2])", reqnodes="n3"),
        Job("3", priority=0.5, reason="Resources", comment="bridge:pinned()", reqnodes="n3"),
        Job("4", comment="bridge:user-held bridge:pinned(n2)", reqnodes="n3"),
        Job("5", priority=0.5, admin_comment="", comment="bridge:pinned()", reqnodes="n3"),
    ]
    deadman.put(jobs=jobs)
    told = deadman.run()
    assert "released 2 held jobs, cleared 5 node lists" in told.words
    assert [job.reqnodes for job in told.jobs.values()] == ["", "n[1-2]", "", "n2", ""]
    assert kept(told) == {"4"}
    orders = [command for command in told.commands if command.startswith("scontrol ") and "show" not in command]
    assert orders[-1] == "scontrol release 1,2", "a released job must not start on a stale list"


@pytest.mark.parametrize("list_", ["n1\nrelease 9", "n1 n2", "n1;x", "$(touch x)", "n1'"])
def test_invalid_node_list_never_reaches_command(deadman: DeadMan, list_: str) -> None:
    deadman.put(jobs=[Job("1", comment=f"bridge:pinned({list_})")])
    told = deadman.run()
    assert not [command for command in told.commands if "update" in command or "9" in command.split()]
    assert kept(told) == set()


def test_node_list_never_seen_by_plugin_belongs_to_owner(deadman: DeadMan) -> None:
    job = Job("1", priority=0.5, admin_comment="", comment="bridge:pinned()", reqnodes="n3")
    deadman.put(jobs=[job], plugin=False)
    assert deadman.run().jobs == {"1": job}


# Arrays


def test_names_tasks_individually(deadman: DeadMan) -> None:
    """Under the bare number of its array a change would be meant for running tasks too, and Slurm refuses it."""
    jobs = [
        Job("9_2", reason="JobHeldAdmin", restartcnt=1, comment="bridge:wait bridge:pinned()", reqnodes="n2"),
        Job("11_[3,5-8%2]", comment="bridge:pinned()", reqnodes="n2"),
        Job("12_[1-4:2,7,12-17:5]"),
        Job("13"),
    ]
    deadman.put(jobs=jobs)
    told = deadman.run()
    assert "released 4 held jobs, cleared 2 node lists" in told.words
    assert (told.status, kept(told)) == (0, set())
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


def test_reports_actual_results(deadman: DeadMan) -> None:
    jobs = [Job(str(n), comment="bridge:pinned()", reqnodes="n1") for n in range(1, 16)]
    deadman.put(jobs=jobs, stubborn=[str(n) for n in range(3, 16)])
    told = deadman.run()
    assert told.status == 1
    assert "released 2 held jobs, cleared 2 node lists" in told.words
    assert "still held: 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, and 3 more\n" in told.words
    assert "node list not cleared: 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, and 3 more\n" in told.words


def test_reports_released_job_whose_list_stays(deadman: DeadMan) -> None:
    job = Job("3", priority=0.5, reason="Resources", comment="bridge:pinned()", reqnodes="n1")
    deadman.put(jobs=[job], stubborn=["3"])
    told = deadman.run()
    assert told.status == 1
    assert "released 0 held jobs, cleared 0 node lists\n" in told.words
    assert "node list not cleared: 3\n" in told.words


def test_prints_nothing_about_jobs_without_work(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("1", priority=0.5)])
    told = deadman.run()
    assert told.words == f"no heartbeat at {deadman.heartbeat}\n"
    assert len([command for command in told.commands if command.startswith("squeue")]) == 1


def test_releases_many_jobs_in_few_commands(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job(str(n)) for n in range(1, 1202)])
    told = deadman.run()
    assert "released 1201 held jobs" in told.words
    assert len([command for command in told.commands if "release" in command]) == 3


def test_missing_squeue_is_failure(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("1")], squeue_fails=1)
    told = deadman.run()
    assert "squeue failed: no job was released" in told.words
    assert (told.status, kept(told)) == (1, {"1"})


def test_reports_controller_that_vanishes_midway(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("1")], squeue_good=1)
    told = deadman.run()
    assert "sent releases for 1 jobs to Slurm; squeue failed, so their effect is unknown" in told.words
    assert told.status == 1


# The ledger


def test_asks_ledger_about_possible_own_admin_holds(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("1", admin_comment="", reason="JobHeldAdmin"), Job("2")])
    told = deadman.run()
    assert "cpsched release-all --force" in told.commands
    assert "released 1 held jobs" in told.words
    assert "from the ledger: the bridge no longer holds any job" in told.words
    assert told.commands.index("cpsched release-all --force") > told.commands.index("scontrol release 2")


@pytest.mark.parametrize("case", ["held by its owner", "held by an administrator", "not held"])
def test_does_not_ask_ledger_about_other_holds(deadman: DeadMan, case: str) -> None:
    deadman.put(jobs=[NOT_OURS[case]])
    assert not [command for command in deadman.run().commands if command.startswith("cpsched")]


def test_unreadable_ledger_is_reported_and_rest_released(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("1", admin_comment="", reason="JobHeldAdmin"), Job("2")], ledger_works=False)
    told = deadman.run()
    assert "release from the ledger failed: storage error" in told.words
    assert (told.status, kept(told)) == (1, {"1"})


@pytest.mark.parametrize(
    ("command", "said"),
    [("", ""), ("no-such-command release-all", "not compared with the ledger: there is no program no-such-command")],
)
def test_missing_command_skips_only_ledger(deadman: DeadMan, command: str, said: str) -> None:
    deadman.put(jobs=[Job("1", admin_comment="", reason="JobHeldAdmin"), Job("2")])
    told = deadman.run(CPSCHED_DEADMAN_LEDGER=command)
    assert (told.status, kept(told), "ledger" in told.words) == (0, {"1"}, bool(said))
    assert said in told.words


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_root_opens_ledger_as_folder_owner(deadman: DeadMan) -> None:
    """Files that root makes there could not be opened by the bridge afterwards."""
    os.chown(deadman.heartbeat.parent, 65534, 65534)
    log = deadman.path / "setpriv.log"
    deadman.command("setpriv", f"#!/bin/sh\necho $@ >>'{log}'\nwhile [ $1 != -- ]; do shift; done\nshift\nexec $@\n")
    deadman.put(jobs=[Job("1", admin_comment="", reason="JobHeldAdmin")])
    told = deadman.run()
    assert "cpsched release-all --force" in told.commands
    used = log.read_text()
    assert used == "--reuid nobody --regid nobody --init-groups -- cpsched release-all --force\n"


# A full disk


def test_works_on_full_disk(deadman: DeadMan) -> None:
    """No file may grow; more jobs than fit in a pipe, which a here-string would put in a file."""
    names = [str(n) for n in range(100_000, 105_200)]
    deadman.put(jobs=[Job(name, comment="bridge:pinned()", reqnodes="n1") for name in names[:10]])
    told = deadman.run(before="ulimit -S -f 0", stdout="/dev/full")
    assert kept(told) == set()
    deadman.put(jobs=[Job(name) for name in names])
    told = deadman.run(before="ulimit -S -f 0")
    assert kept(told) == set()
    assert "released 5200 held jobs" in told.words


def test_leaves_no_file(deadman: DeadMan) -> None:
    deadman.put(jobs=[Job("7")])
    before = set(deadman.folder.rglob("*"))
    deadman.run(TMPDIR=str(deadman.folder))
    assert set(deadman.folder.rglob("*")) == before
