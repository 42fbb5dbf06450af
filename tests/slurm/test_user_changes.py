"""What users do to their own pending jobs while the bridge holds them, and what odd jobs do to those of others."""

from __future__ import annotations

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until


def test_a_comment_that_is_no_text_costs_nobody_anything(slurm: Slurm) -> None:
    """Nor do a name of any bytes, control characters and quotes: all of these jobs run, and so do all others."""
    slurm.plugin(on=True)
    odd = (
        r"""--comment="$(printf '\377\376')" """,
        r"""--comment="$(printf 'x\033[31m\001\177y')" """,
        r"""--job-name="$(printf 'a\377b')" """,
        r"""--job-name="$(printf 'two\nlines "and" [bold]')" """,
        r"""--comment="$(printf 'x%.0s' $(seq 1024))" """,
    )
    with LiveBridge(slurm, "bytes") as bridge:
        for user in ("alice", "bob"):
            submit = "".join(
                f"sbatch --parsable -o /dev/null -n1 -t1 {option} --wrap 'sleep 1' || exit 1\n" for option in odd
            )
            strange = slurm.run("bash", "-s", user=user, stdin=submit).split()
            plain = slurm.burst(5, "-n1", "-t1", user=user)
            slurm.wait_for_state([*strange, *plain], "COMPLETED", 40)
            assert {*strange, *plain} <= set(bridge.ledger()), "the bridge started them"
        # A gap tells of the machine, not of the jobs.
        assert set(bridge.events()) <= {"mode", "in_force", "started", "cycle_gap"}


def test_nobody_can_write_what_running_jobs_have_on_their_nodes(slurm: Slurm) -> None:
    """A name or comment with lines like scontrol's own stops no cycle, takes no node, and speaks for no other job."""
    slurm.plugin(on=True)
    part = "     Nodes={} CPU_IDs={} Mem=1 GRES=\n"
    with LiveBridge(slurm, "layouts") as bridge:
        honest = slurm.sbatch("-n6", "-N2", "-t5", "--job-name=honest", script="sleep 200")
        slurm.wait_for_state(honest, "RUNNING", 30)
        forged = f"x\nJobId={honest} JobName=y\n   NumNodes=2\n" + part.format("n[1-2]", "0-15")
        words = (
            "x Nodes=a CPU_IDs=no Mem=1 GRES=",
            forged,
            "x\n" + part.format("n[1-4]", "0-15"),
            "x\n" + part.format("n1", "9" * 500) + part.format("n[0-199999][0-199999]", "0"),
        )
        options = [f"{option}={text}" for text in words for option in ("--job-name", "--comment")]
        liars = [slurm.sbatch("-N2", "-n2", "-t5", option, user="bob", script="sleep 200") for option in options]
        slurm.wait_for_state(liars, "RUNNING", 40)
        others = slurm.burst(10, "-n1", "-t1", script="sleep 1")
        slurm.wait_for_state(others, "COMPLETED", 60)
        assert set(slurm.states(liars).values()) == {"RUNNING"}, "the others did not have to wait for them"
        assert set(bridge.events()) <= {"mode", "in_force", "started", "cycle_gap"}


def test_a_job_that_slurm_holds_is_handed_back_once(slurm: Slurm) -> None:
    """Its owner asks for what no node has: no ping-pong between Slurm's hold and the bridge's hand-back."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "ping-pong", start={"timeout_s": 5}) as bridge:
        blocked = slurm.burst(4, "-N1", "-n16", "-t1", script="sleep 6")
        slurm.wait_for_state(blocked, "RUNNING", 30)
        one, other = slurm.burst(2, "-N1", "-n1", "-t1", script="sleep 1")
        bridge.wait_for_rounds(2)
        slurm.scontrol("update", f"JobId={one}", "Gres=gpu:9", user="alice")
        slurm.scontrol("update", f"JobId={other}", "NumNodes=10", user="alice")
        slurm.wait_for_state(blocked, "COMPLETED", 40)
        bridge.wait_for_rounds(8)
        before = [bridge.commands(job) for job in (one, other)]
        bridge.wait_for_rounds(6)
        assert [bridge.commands(job) for job in (one, other)] == before, "neither is touched any more"
        assert slurm.states([one, other]) == {one: "PENDING", other: "PENDING"}
        assert "stood_down" not in bridge.events()
        slurm.scontrol("update", f"JobId={one}", "Gres=gpu:1", user="alice")
        slurm.wait_for_state(one, "COMPLETED", 30)


def test_jobs_changed_between_decision_and_start(slurm: Slurm) -> None:
    """Time limit, nodes and partition of waiting jobs, over and over while they are started: each runs as it asks."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "changed", start={"timeout_s": 5}) as bridge:
        jobs = slurm.burst(24, "-n2", "-t2", script="sleep 2")
        changes = ("TimeLimit=1", "NumNodes=2", "Partition=gpu", "TimeLimit=2", "Partition=short")
        lines = [f"scontrol update JobId={job} {changes[at % 5]} 2>/dev/null" for at, job in enumerate(jobs)]
        slurm.run("bash", "-s", user="alice", stdin="\n".join(lines) + "\ntrue\n")
        slurm.wait_for_state(jobs, "COMPLETED", 90)
        assert "stood_down" not in bridge.events()
        wait_until(lambda: len(slurm.sacct(jobs)) == len(jobs), 30, "accounting has all of them")
        assert {job.restarts for job in slurm.sacct(jobs).values()} == {0}
