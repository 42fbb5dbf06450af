"""Test job_submit.lua on a real controller: which jobs it holds at submission, who may release them, and the marks of
holds.
"""

import pytest

from tests.slurm.harness import SAYS_WHY, Slurm


@pytest.fixture
def plugin(slurm: Slurm) -> Slurm:
    slurm.plugin(on=True, begin_delay_s=0)
    return slurm


IMPOSSIBLE = (
    "--mem=99999999", "--gres=gpu:9", "--ntasks=17 --nodes=1", "--exclude=n[1-4]", "--nodelist=n1 --gres=gpu:1",
    "--gres=gpu:nosuch:1", "--partition=gpu --nodelist=n1", "--mem-per-cpu=99999999", "--gpus=99",
)  # fmt: skip


@pytest.mark.conformance
def test_slurm_rejects_impossible_requests(slurm: Slurm) -> None:
    """Slurm tests the request of a delayed job, but not of a held one."""
    slurm.plugin(on=True)
    for request in IMPOSSIBLE:
        message = slurm.refused("sbatch", *request.split(), "--wrap=true", user="alice")
        assert "Requested node configuration is not available" in message, request
    assert slurm.squeue(states="pending") == {}


@pytest.mark.conformance
def test_delayed_job_does_not_start_until_bridge_releases_it(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    job, held = slurm.sbatch("--comment=mine", script="true"), slurm.sbatch()
    slurm.scontrol("hold", held, user="cpsched")
    assert (slurm.job(held).held, slurm.job(held).comment) == (True, "bridge:wait")
    assert (slurm.job(job).held, slurm.job(job).comment) == (False, "bridge:begin(0) mine")
    slurm.refused("scontrol", "release", job, user="alice")
    slurm.scontrol("release", job, user="cpsched")
    slurm.wait_for_state(job, "COMPLETED", 15)
    assert slurm.job(job).comment == "mine"


def test_srun_job_is_held(plugin: Slurm) -> None:
    plugin.run("bash", "-c", "nohup srun --job-name=interactive hostname >/dev/null 2>&1 &", user="alice")
    plugin.wait_until(lambda: plugin.squeue(states="pending"), 10, "srun is in the queue")
    (job,) = plugin.squeue(states="pending").values()
    assert (job.held, job.admin_comment) == (True, "bridge:wait")


def test_switch_needs_no_restart(slurm: Slurm) -> None:
    slurm.plugin(on=True, begin_delay_s=0)
    held = slurm.sbatch()
    slurm.plugin(on=False)
    free = slurm.sbatch("--begin=now+1hour")
    slurm.plugin(on=True, begin_delay_s=0)
    held_again = slurm.sbatch()
    assert [slurm.job(j).held for j in (held, free, held_again)] == [True, False, True]
    assert slurm.job(free).admin_comment == ""


def test_scrontab_is_left_to_slurm(plugin: Slurm) -> None:
    plugin.run("scrontab", "-", stdin="0 0 1 1 * true\n", user="alice")
    (job,) = plugin.squeue(states="pending").values()
    plugin.run("scrontab", "-r", user="alice")
    assert (job.held, job.admin_comment) == (False, "")


@pytest.mark.conformance
def test_owner_cannot_release_job_waiting_for_bridge(plugin: Slurm) -> None:
    job = plugin.sbatch("--comment=my words")
    message = plugin.refused("scontrol", "release", job, user="alice")
    assert "waits for the cluster's scheduler" in message or not SAYS_WHY
    seen = plugin.job(job)
    assert (seen.held, seen.admin_comment, seen.comment) == (True, "bridge:wait", "my words")


def test_job_submitted_held_belongs_to_owner(plugin: Slurm) -> None:
    """The plugin rejects the bridge's release of the job. The owner's release leaves the job held for the bridge."""
    job = plugin.sbatch("--hold", "--comment=my words")
    assert plugin.job(job).comment == "bridge:user-held my words"
    plugin.refused("scontrol", "release", job, user="cpsched")
    plugin.scontrol("release", job, user="alice")
    seen = plugin.job(job)
    assert (seen.held, seen.admin_comment, seen.comment) == (True, "bridge:wait", "my words")
    plugin.scontrol("release", job, user="cpsched")
    plugin.wait_for_state(job, "COMPLETED", 15)


@pytest.mark.conformance
def test_pin_stores_node_list_of_owner(plugin: Slurm) -> None:
    asked, free = plugin.sbatch("--nodelist=n[1-2]", "--nodes=2"), plugin.sbatch()
    for job in (asked, free):
        plugin.scontrol("update", f"JobId={job}", "ReqNodeList=n3", user="cpsched")
    assert "bridge:pinned(n[1-2])" in plugin.job(asked).comment
    assert plugin.job(free).comment == "bridge:pinned()"
    plugin.scontrol("update", f"JobId={asked}", "ReqNodeList=n[1-2]", user="cpsched")
    plugin.scontrol("update", f"JobId={free}", "ReqNodeList=", user="cpsched")
    assert plugin.job(asked).comment == "bridge:asked(n[1-2])"
    assert plugin.job(free).comment == ""
