"""Record what pyslurm reports about a real cluster in many situations, as JSON beside this file.

    deploy/cluster up && python3 tests/data/slurm/record.py [SCENE...]

Takes about three minutes (a time-out has to be waited for). It resets the cluster before each scene.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.slurm.harness import Slurm  # noqa: E402

# Runs in the bridge's image. Everything that pyslurm knows of each record, by its public attribute names; values that
# are pyslurm's own objects become the mapping of their public attributes.
DUMP = """
import enum, json, sys, time
import pyslurm

def plain(value):
    if isinstance(value, enum.Enum):
        return str(value.value) if not isinstance(value, enum.Flag) else str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if not type(value).__module__.startswith("pyslurm"):
        return str(value)
    names = [n for n in dir(type(value)) if not n.startswith("_") and not callable(getattr(value, n))]
    values = {n: plain(getattr(value, n)) for n in names}
    return {n: v for n, v in values.items() if v not in (None, {}, [])}

def record(item, excluded=()):
    return {k: plain(v) for k, v in item.to_dict().items() if k not in excluded}

def job(item):
    return record(item, excluded=("stats", "steps", "pids"))

print(json.dumps({
    "recorded_at_s": int(time.time()),
    "pyslurm": pyslurm.__version__,
    "jobs": [job(j) for j in pyslurm.Jobs.load().values()],
    "nodes": [record(n) for n in pyslurm.Nodes.load().values()],
    "partitions": [record(p) for p in pyslurm.Partitions.load().values()],
    "reservations": [record(r) for r in pyslurm.Reservations.load().values()],
    "config": record(pyslurm.slurmctld.Config.load()),
}))
"""

DUMP_DATABASE = """
import enum, json, sys
import pyslurm
exec(sys.argv[1])
ids = [int(i) for i in sys.argv[2].split(",")]
jobs = pyslurm.db.Jobs.load(pyslurm.db.JobFilter(ids=ids))
print(json.dumps({"pyslurm": pyslurm.__version__, "jobs": [job(j) for j in jobs.values()]}))
"""

# What a user may ask for; the case's name, sbatch's options. Jobs that need no other job.
REQUESTS: dict[str, tuple[str, ...]] = {
    "one_core": ("--ntasks=1", "--time=10"),
    "no_time_limit": ("--ntasks=1",),
    "time_min": ("--ntasks=1", "--time=30", "--time-min=10"),
    "six_tasks": ("--ntasks=6", "--time=10"),
    "forty_tasks": ("--ntasks=40", "--time=10"),
    "two_nodes": ("--nodes=2", "--time=10"),
    "two_nodes_six_tasks": ("--nodes=2", "--ntasks=6", "--time=10"),
    "one_to_three_nodes": ("--nodes=1-3", "--ntasks=20", "--time=10"),
    "two_nodes_three_tasks_each": ("--nodes=2", "--ntasks-per-node=3", "--time=10"),
    "tasks_per_node_without_nodes": ("--ntasks=6", "--ntasks-per-node=3", "--time=10"),
    "four_tasks_of_two_cpus": ("--ntasks=4", "--cpus-per-task=2", "--time=10"),
    "mem_per_node": ("--ntasks=2", "--mem=4G", "--time=10"),
    "mem_per_node_two_nodes": ("--nodes=2", "--mem=4G", "--time=10"),
    "mem_per_cpu": ("--ntasks=1", "--cpus-per-task=4", "--mem-per-cpu=2G", "--time=10"),
    "mem_all_of_node": ("--ntasks=1", "--mem=0", "--time=10"),
    "gres_two_gpus": ("--nodes=1", "--gres=gpu:2", "--time=10"),
    "gpus_total": ("--gpus=2", "--time=10"),
    "gpus_per_node_two_nodes": ("--nodes=2", "--gpus-per-node=1", "--time=10"),
    "gpus_per_task": ("--ntasks=2", "--gpus-per-task=1", "--time=10"),
    "cpus_per_gpu": ("--gpus=1", "--cpus-per-gpu=4", "--time=10"),
    "mem_per_gpu": ("--gpus=1", "--mem-per-gpu=2G", "--time=10"),
    "exclusive": ("--exclusive", "--ntasks=1", "--time=10"),
    "exclusive_user": ("--exclusive=user", "--ntasks=1", "--time=10"),
    "oversubscribe": ("--oversubscribe", "--ntasks=1", "--time=10"),
    "feature": ("--constraint=rack1", "--time=10"),
    "features_and": ("--constraint=gpu&rack2", "--time=10"),
    "features_or": ("--constraint=rack1|rack2", "--time=10"),
    "features_matching_or": ("--constraint=[rack1|rack2]", "--nodes=2", "--time=10"),
    "features_counted": ("--constraint=[rack1*1&rack2*1]", "--nodes=2", "--time=10"),
    "nodelist": ("--nodelist=n2", "--time=10"),
    "nodelist_two": ("--nodelist=n[2-3]", "--nodes=2", "--time=10"),
    "exclude": ("--exclude=n[1,3]", "--time=10"),
    "begin_later": ("--begin=now+1hour", "--time=10"),
    "deadline": ("--deadline=now+1day", "--time=10"),
    "array": ("--array=0-9%2", "--time=10"),
    "array_stepped": ("--array=1-9:4", "--time=10"),
    "partition_short": ("--partition=short", "--time=10"),
    "partition_list": ("--partition=short,main", "--time=10"),
    "partition_down": ("--partition=main", "--time=10", "--comment=goes to a partition that is down"),
    "no_requeue": ("--no-requeue", "--time=10"),
    "nice": ("--nice=100", "--time=10"),
    "contiguous": ("--contiguous", "--nodes=2", "--time=10"),
    "switches": ("--switches=1", "--nodes=2", "--time=10"),
    "tmp_disk": ("--tmp=100M", "--time=10"),
    "min_cpus": ("--mincpus=8", "--ntasks=1", "--time=10"),
    "threads_per_core": ("--threads-per-core=1", "--time=10"),
    "ntasks_per_socket": ("--ntasks=4", "--ntasks-per-socket=2", "--time=10"),
    "sockets_per_node": ("--sockets-per-node=2", "--ntasks=2", "--time=10"),
    "spread": ("--spread-job", "--ntasks=4", "--time=10"),
    "use_min_nodes": ("--use-min-nodes", "--nodes=1-2", "--ntasks=4", "--time=10"),
    "licenses": ("--licenses=matlab:2", "--time=10"),
    "kill_on_invalid_dependency": ("--kill-on-invalid-dep=yes", "--time=10"),
    "reservation_wanted": ("--reservation=class", "--time=10"),
}


def dump(slurm: Slurm, name: str, cases: dict[str, str], expected_missing: tuple[str, ...] = ()) -> None:
    """Write one scene: the snapshot, and which job id belongs to which case."""
    scene = slurm.python(DUMP)
    first = min(int(i) for i in cases.values())  # the controller still knows jobs of the scene before
    scene["jobs"] = [j for j in scene["jobs"] if j["id"] >= first]
    present = {str(j["id"]) for j in scene["jobs"]}
    missing = {case: i for case, i in cases.items() if i not in present and case not in expected_missing}
    if missing:
        raise SystemExit(f"{name}: not in the recording: {missing}")
    lines = slurm.run("scontrol", "--oneliner", "--details", "show", "jobs").splitlines()
    scene["scontrol_jobs"] = [n for n in lines if int(n.split()[0].removeprefix("JobId=")) >= first]
    scene["scontrol_nodes"] = slurm.run("scontrol", "--oneliner", "show", "nodes").splitlines()
    write(name, {"cases": cases, **scene})


def write(name: str, content: dict[str, Any]) -> None:
    path = HERE / f"{name}.json"
    parts = []
    for key, value in content.items():
        if isinstance(value, list):  # one record a line: readable differences
            rows = ",\n".join("  " + json.dumps(v, sort_keys=True) for v in value)
            parts.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    print(f"{path.name}: {len(content['jobs'])} jobs")


def submit_requests(slurm: Slurm, script: str) -> dict[str, str]:
    return {case: slurm.sbatch(f"--job-name={case}", *options, script=script) for case, options in REQUESTS.items()}


def add_class_reservation(slurm: Slurm) -> None:
    slurm.scontrol(
        "create", "reservation", "ReservationName=class", "StartTime=now+2hours", "Duration=60", "Users=alice",
        "Nodes=n2",
    )  # fmt: skip


def pending(slurm: Slurm) -> None:
    """Every request, held by the plugin, on an idle cluster; holds by others, dependencies, a het and a cron job."""
    add_class_reservation(slurm)
    failed = slurm.sbatch("--time=10", script="false")
    slurm.wait_for_state(failed, "FAILED")
    slurm.plugin(on=True, begin_delay_s=0)
    cases = submit_requests(slurm, "sleep 60")
    slurm.scontrol("update", f"JobId={cases['partition_down']}", "Partition=closed")
    first = cases["one_core"]
    for kind in ("after", "afterany", "afterok", "afternotok"):
        cases[f"dependency_{kind}"] = slurm.sbatch(f"--dependency={kind}:{first}", "--time=10")
    cases["dependency_two"] = slurm.sbatch(f"--dependency=afterok:{first},afterany:{cases['two_nodes']}", "--time=10")
    cases["dependency_either"] = slurm.sbatch(
        f"--dependency=afterok:{first}?afterany:{cases['two_nodes']}", "--time=10"
    )
    cases["dependency_singleton"] = slurm.sbatch("--dependency=singleton", "--job-name=one_core", "--time=10")
    cases["held_by_user"] = slurm.sbatch("--hold", "--time=10", "--comment=words of the user")
    cases["held_by_user_later"] = slurm.sbatch("--time=10")
    slurm.scontrol("hold", cases["held_by_user_later"], user="alice")
    cases["held_by_admin"] = slurm.sbatch("--time=10")
    slurm.scontrol("hold", cases["held_by_admin"])
    cases["held_by_bridge"] = slurm.sbatch("--time=10")
    slurm.scontrol("hold", cases["held_by_bridge"], user="cpsched")
    cases["pinned"] = slurm.sbatch("--nodes=2", "--ntasks=6", "--time=10")
    slurm.scontrol("update", f"JobId={cases['pinned']}", "ReqNodeList=n[1-2]", "NumNodes=2-2", user="cpsched")
    cases["of_bob"] = slurm.sbatch("--time=10", user="bob")
    slurm.run("bash", "-c", "nohup srun --job-name=srun --time=10 hostname >/dev/null 2>&1 &", user="alice")
    slurm.run("bash", "-c", "nohup salloc --job-name=salloc --time=10 >/dev/null 2>&1 &", user="alice")
    # The same without the plugin: neither held nor marked.
    slurm.plugin(on=False)
    cases["not_held_begin_later"] = slurm.sbatch("--begin=now+1hour", "--time=10")
    cases["not_held_dependency"] = slurm.sbatch(f"--dependency=afterok:{first}", "--time=10")
    cases["not_held_user_hold"] = slurm.sbatch("--hold", "--time=10")
    cases["not_held_admin_hold"] = slurm.sbatch("--hold", "--time=10")
    slurm.scontrol("hold", cases["not_held_admin_hold"])
    cases["dependency_never"] = slurm.sbatch(f"--dependency=afterok:{failed}", "--time=10")
    cases["het"] = slurm.run(
        "sbatch", "--parsable", "--begin=now+1hour", "--time=10", "--ntasks=2", ":", "--gpus=1", "--wrap", "sleep 1",
        user="alice",
    ).strip()  # fmt: skip
    slurm.run("scrontab", "-", stdin="0 0 1 1 * sleep 1\n", user="alice")
    slurm.wait_until(
        lambda: {"srun", "salloc"} <= {j.name for j in slurm.squeue().values()}, 10, "srun and salloc wait"
    )
    for name in ("srun", "salloc"):
        cases[name] = next(i for i, j in slurm.squeue().items() if j.name == name)
    dump(slurm, "pending", cases)
    slurm.run("scrontab", "-r", user="alice")


def running(slurm: Slurm) -> None:
    """Jobs that run on all four nodes, the queue behind them, and jobs that ended a moment ago."""
    shapes = {
        "to_suspend": ("--ntasks=1", "--nodelist=n1"),
        "one_core": ("--ntasks=1",),
        "six_tasks": ("--ntasks=6",),
        "two_nodes_three_tasks_each": ("--nodes=2", "--ntasks-per-node=3"),
        "uneven": ("--nodes=2", "--ntasks=6", "--nodelist=n[1-2]"),
        "mem_per_node": ("--ntasks=1", "--mem=4G"),
        "mem_per_cpu": ("--ntasks=1", "--cpus-per-task=2", "--mem-per-cpu=2G"),
        "gres_one_gpu": ("--nodes=1", "--gres=gpu:1", "--nodelist=n3"),
        "gpus_per_node_two_nodes": ("--nodes=2", "--gpus-per-node=1"),
        "array": ("--array=0-3%2",),
    }
    ended = {
        "completed": ("--time=10", "true"),
        "completed_two_nodes": ("--nodes=2", "sleep 1"),
        "failed": ("--time=10", "exit 3"),
        "killed_by_signal": ("--time=10", "kill -9 $$"),
        "completed_array": ("--array=1-2", "sleep 1"),
    }
    cases = {}
    for case, (option, script) in ended.items():
        cases[case] = slurm.sbatch(f"--job-name={case}", option, script=script)
    slurm.wait_until(lambda: not slurm.squeue(states="pending,running,completing"), 30, "the short jobs ended")
    for case, options in shapes.items():
        cases[case] = slurm.sbatch(f"--job-name={case}", "--time=30", *options, script="sleep 500")
    started = [i for case, i in cases.items() if case in shapes and case != "array"]
    slurm.wait_for_state(started, "RUNNING")
    slurm.scontrol("suspend", cases["to_suspend"])
    cases["waits_for_resources"] = slurm.sbatch("--nodes=4", "--exclusive", "--time=10")
    cases["waits_for_priority"] = slurm.sbatch("--nodes=4", "--exclusive", "--time=10")
    cases["pinned_to_full_node"] = slurm.sbatch("--nodelist=n2", "--exclusive", "--time=10")
    cases["cancelled_pending"] = slurm.sbatch("--hold", "--time=10")
    slurm.run("scancel", cases["cancelled_pending"], user="alice")
    cases["cancelled_running"] = slurm.sbatch("--ntasks=1", "--time=10", script="sleep 500")
    slurm.wait_for_state(cases["cancelled_running"], "RUNNING")
    slurm.run("scancel", cases["cancelled_running"], user="alice")
    cases["timed_out"] = slurm.sbatch("--ntasks=1", "--time=1", script="sleep 500")
    # A running job that shows priority 0: held while it ran.
    cases["held_while_running"] = slurm.sbatch("--ntasks=1", "--time=10", script="sleep 500")
    slurm.wait_for_state(cases["held_while_running"], "RUNNING")
    slurm.scontrol("hold", cases["held_while_running"], user="cpsched")
    slurm.wait_for_state(cases["timed_out"], "TIMEOUT", timeout_s=180)
    dump(slurm, "running", cases, expected_missing=("completed_array", "array"))


def trouble(slurm: Slurm) -> None:
    """Nodes drained, draining, down, not responding, and under maintenance; requeued jobs; pins that cannot be met."""
    cases = {}
    cases["on_draining_node"] = slurm.sbatch("--nodelist=n1", "--time=10", script="sleep 500")
    cases["requeued_after_node_failure"] = slurm.sbatch("--nodelist=n2", "--time=10", script="sleep 500")
    cases["failed_with_node"] = slurm.sbatch("--nodelist=n2", "--no-requeue", "--time=10", script="sleep 500")
    cases["requeued_by_admin"] = slurm.sbatch("--nodelist=n4", "--time=10", script="sleep 500")
    cases["requeued_held"] = slurm.sbatch("--nodelist=n4", "--time=10", script="sleep 500")
    slurm.wait_for_state(cases.values(), "RUNNING")
    cases["impossible_gres"] = slurm.sbatch("--hold", "--nodes=1", "--gres=gpu:1", "--time=10")
    slurm.scontrol("update", f"JobId={cases['impossible_gres']}", "ReqNodeList=n1", user="cpsched")
    slurm.scontrol("release", cases["impossible_gres"], user="cpsched")
    slurm.wait_until(lambda: slurm.job(cases["impossible_gres"]).reason == "BadConstraints", 20, "Slurm sees that")
    slurm.scontrol("requeue", cases["requeued_by_admin"])
    slurm.scontrol("requeuehold", cases["requeued_held"])
    cases["exclusive"] = slurm.sbatch("--exclusive", "--ntasks=1", "--nodelist=n4", "--time=10", script="sleep 500")
    slurm.wait_for_state(cases["exclusive"], "RUNNING")
    slurm.drain("n1", "fan broken")
    slurm.drain("n3", "disk broken")
    cases["pinned_to_drained_node"] = slurm.sbatch("--nodelist=n3", "--time=10")
    slurm.scontrol(
        "create", "reservation", "ReservationName=maintenance", "StartTime=now", "Duration=120", "Users=root",
        "Nodes=n4", "Flags=MAINT,IGNORE_JOBS",
    )  # fmt: skip
    slurm.scontrol(
        "create", "reservation", "ReservationName=later", "StartTime=now+2hours", "Duration=60", "Users=root",
        "Nodes=ALL", "Flags=MAINT,IGNORE_JOBS",
    )  # fmt: skip
    add_class_reservation_of_cores(slurm)
    slurm.kill("n2")
    slurm.wait_until(lambda: slurm.node_states()["n2"].endswith("*"), 90, "n2 does not answer")
    dump(slurm, "not_responding", cases)
    slurm.wait_until(lambda: slurm.node_states()["n2"] == "down*", 120, "n2 is down")
    slurm.wait_for_state(cases["requeued_after_node_failure"], "PENDING")
    dump(slurm, "trouble", cases)
    slurm.start("n2")


def add_class_reservation_of_cores(slurm: Slurm) -> None:
    slurm.scontrol(
        "create", "reservation", "ReservationName=cores", "StartTime=now+1day", "Duration=60", "Users=alice,bob",
        "NodeCnt=1", "CoreCnt=4",
    )  # fmt: skip


def typed(slurm: Slurm) -> None:
    """GPUs with a type: n3 has two of type a100, n4 one a100 and one l40."""
    change = (
        "sed -i -e '/^NodeName=n3/s/gpu:2/gpu:a100:2/' -e '/^NodeName=n4/s/gpu:2/gpu:a100:1,gpu:l40:1/' "
        "/etc/slurm/slurm.conf; printf '%s\\n' 'NodeName=n3 Name=gpu Type=a100 File=/run/fakegpu[0-1]' "
        "'NodeName=n4 Name=gpu Type=a100 File=/run/fakegpu0' 'NodeName=n4 Name=gpu Type=l40 File=/run/fakegpu1' "
        "> /etc/slurm/gres.conf; scontrol reconfigure"
    )
    slurm.run("bash", "-c", change)
    slurm.wait_until(lambda: "gpu:l40:1" in slurm.run("scontrol", "show", "node", "n4"), 30, "the types are known")
    slurm.wait_until(lambda: set(slurm.node_states().values()) == {"idle"}, 30, "all nodes idle")
    cases = {
        "running_typed": slurm.sbatch("--nodes=1", "--gres=gpu:l40:1", "--time=10", script="sleep 500"),
        "running_untyped": slurm.sbatch("--nodes=1", "--gres=gpu:2", "--time=10", script="sleep 500"),
    }
    slurm.wait_for_state(cases.values(), "RUNNING")
    slurm.plugin(on=True, begin_delay_s=0)
    cases["gres_typed"] = slurm.sbatch("--nodes=1", "--gres=gpu:a100:2", "--time=10")
    cases["gres_untyped"] = slurm.sbatch("--nodes=1", "--gres=gpu:1", "--time=10")
    cases["gpus_typed"] = slurm.sbatch("--gpus=a100:1", "--time=10")
    cases["gpus_per_node_typed"] = slurm.sbatch("--nodes=2", "--gpus-per-node=a100:1", "--time=10")
    cases["gpus_per_task_typed"] = slurm.sbatch("--ntasks=2", "--gpus-per-task=a100:1", "--time=10")
    cases["gres_of_two_types"] = slurm.sbatch("--nodes=1", "--gres=gpu:a100:1,gpu:l40:1", "--time=10")
    dump(slurm, "typed_gpus", cases)
    slurm.run("cp", "/etc/slurm/.rendered/gres.conf", "/etc/slurm/gres.conf")  # `reset` restores slurm.conf


def database(slurm: Slurm) -> None:
    """Ended jobs as the accounting database reports them."""
    cases = {
        "completed": slurm.sbatch("--time=10", script="sleep 2"),
        "completed_two_nodes": slurm.sbatch("--nodes=2", "--ntasks=6", "--time=10", script="sleep 2"),
        "completed_gpu": slurm.sbatch("--gres=gpu:1", "--nodes=1", "--time=10", script="sleep 2"),
        "failed": slurm.sbatch("--time=10", script="exit 3"),
        "array": slurm.sbatch("--array=1-3", "--time=10", script="sleep 1"),
        "cancelled_pending": slurm.sbatch("--hold", "--time=10"),
        "cancelled_running": slurm.sbatch("--time=10", script="sleep 500"),
        "running": slurm.sbatch("--time=10", script="sleep 500"),
        "pending": slurm.sbatch("--begin=now+1hour", "--time=10"),
        "requeued": slurm.sbatch("--time=10", script="sleep 500"),
    }
    cases["het"] = slurm.run(
        "sbatch", "--parsable", "--time=10", "--ntasks=2", ":", "--gpus=1", "--wrap", "sleep 1", user="alice"
    ).strip()
    slurm.wait_for_state([cases["cancelled_running"], cases["running"], cases["requeued"]], "RUNNING")
    slurm.run("scancel", cases["cancelled_pending"], cases["cancelled_running"], user="alice")
    slurm.scontrol("requeue", cases["requeued"])
    over = ("COMPLETED", "FAILED", "CANCELLED")
    still = ("running", "pending", "requeued")
    waited = [i for case, i in cases.items() if case not in still]

    def ended() -> bool:
        found = slurm.sacct(waited)
        return len(found) >= len(waited) and all(j.state.split()[0] in over for j in found.values())

    slurm.wait_until(ended, 60, "the jobs are in the database")
    functions = DUMP[DUMP.index("def plain") : DUMP.index("print(")]
    write("database", {"cases": cases, **slurm.python(DUMP_DATABASE, functions, ",".join(cases.values()))})


SCENES: dict[str, Callable[[Slurm], None]] = {
    "pending": pending,
    "running": running,
    "trouble": trouble,
    "typed": typed,
    "database": database,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "scenes", nargs="*", default=list(SCENES), metavar="SCENE", help=f"default: {', '.join(SCENES)}"
    )
    scenes = parser.parse_args().scenes
    if unknown := sorted(set(scenes) - set(SCENES)):
        parser.error(f"no such scene: {', '.join(unknown)}")
    slurm = Slurm()
    try:
        for name in scenes:
            slurm.reset()
            SCENES[name](slurm)
        slurm.reset()
    finally:
        slurm.close()


if __name__ == "__main__":
    main()
