"""What must hold before the bridge may control a Slurm cluster, judged from plain facts; and how to mend each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cpsched_bridge.ports import Check

CLOCK_TOLERANCE_S = 3
SHORTEST_MEMORY_S = 60
"""A controller that forgets ended jobs sooner could do so between two readings of a bridge that backs off."""
DEEP_QUEUE = 1000


def checks_of(facts: Mapping[str, Any]) -> list[Check]:
    """All checks for what `child.Slurm.facts` gathered."""
    config = facts["config"]
    parameters = config["scheduler_parameters"] or {}
    found = [
        Check("controller", True, f"{config['cluster_name']}, Slurm {config['version']}"),
        privilege(facts),
        versions(facts),
        job_shrink(parameters),
        intervals(parameters),
        preemption(config),
        selection(config),
        gpus(config),
        clocks(int(facts["clock_ahead_s"])),
        plugin(config),
        backfill(config),
        burst(parameters),
        memory(config),
    ]
    return [dataclasses.replace(check, mend="") if check.ok else check for check in found]


def privilege(facts: Mapping[str, Any]) -> Check:
    """Operator is enough for holds, releases and node lists; root and SlurmUser have it."""
    user, level = facts["user"], facts["admin_level"]
    born = facts["uid"] == 0 or user == facts["config"]["slurm_user_name"]
    return Check(
        "privilege",
        born or level in ("Operator", "Administrator"),
        f"{user}: {'super user' if born else f'AdminLevel {level}'}",
        f"sacctmgr modify user where name={user} set AdminLevel=Operator",
    )


def versions(facts: Mapping[str, Any]) -> Check:
    """A client library may be older than the controller, never newer."""
    controller, clients = str(facts["config"]["version"] or ""), str(facts["clients"] or "")
    ok = not clients or not controller or _release(clients) <= _release(controller)
    return Check(
        "versions",
        ok,
        f"controller {controller}, clients here {clients or 'unknown'}, pyslurm {facts['pyslurm']}, "
        f"nodes {', '.join(facts['node_versions']) or 'unknown'}",
        "install Slurm clients and a pyslurm that are not newer than slurmctld",
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def job_shrink(parameters: Mapping[str, Any]) -> Check:
    """Without it a node list set on a job that has just started would shrink it and kill its steps."""
    ok = bool(parameters.get("disable_job_shrink"))
    return Check("job shrink", ok, "disabled" if ok else "allowed", "add disable_job_shrink to SchedulerParameters")


def intervals(parameters: Mapping[str, Any]) -> Check:
    """With both schedulers off a released job would never start."""
    main, backfill_s = parameters.get("sched_interval", 60), parameters.get("bf_interval", 30)
    off = [name for name, value in (("sched_interval", main), ("bf_interval", backfill_s)) if str(value) == "-1"]
    return Check(
        "scheduler intervals",
        not off,
        f"sched_interval {main} s, bf_interval {backfill_s} s",
        f"remove {', '.join(f'{name}=-1' for name in off)} from SchedulerParameters",
    )


def preemption(config: Mapping[str, Any]) -> Check:
    """Preempted jobs would lose nodes that the decision counts on."""
    kind, mode = config["preempt_type"], str(config["preempt_mode"] or "OFF").upper()
    ok = kind in (None, "", "preempt/none") and mode == "OFF"
    return Check("preemption", ok, f"{kind or 'none'}, mode {mode}", "set PreemptType=preempt/none")


def selection(config: Mapping[str, Any]) -> Check:
    """Cores, memory and generic resources as the translation counts them need cons_tres."""
    ok = config["select_type"] == "select/cons_tres"
    words = ", ".join(config["select_type_parameters"] or ())
    return Check("node selection", ok, f"{config['select_type']} {words}", "set SelectType=select/cons_tres")


def gpus(config: Mapping[str, Any]) -> Check:
    """pyslurm shows GPUs asked for with --gpus only where accounting tracks them."""
    tracked = set(config["accounting_storage_tres"] or ())
    missing = [f"gres/{name}" for name in config["gres_types"] or () if f"gres/{name}" not in tracked]
    return Check(
        "generic resources",
        not missing,
        f"not tracked: {', '.join(missing)}" if missing else "tracked",
        f"add {','.join(missing)} to AccountingStorageTRES (needs slurmdbd); without, jobs that use --gpus are misread",
        required=False,
    )


def clocks(ahead_s: int) -> Check:
    """Begin times, reservations and waits are told in the controller's time."""
    ok = abs(ahead_s) <= CLOCK_TOLERANCE_S
    return Check(
        "clocks", ok, f"the controller's clock is {ahead_s:+d} s from this host's", "synchronise both with NTP"
    )


def plugin(config: Mapping[str, Any]) -> Check:
    """Without it new jobs are held only when the bridge first sees them, and Slurm may start some before."""
    ok = "lua" in (config["job_submit_plugins"] or ())
    return Check(
        "submit plugin",
        ok,
        "JobSubmitPlugins has lua" if ok else "no lua in JobSubmitPlugins: new jobs are held when first seen",
        "install deploy/slurm/job_submit.lua and set JobSubmitPlugins=lua",
        required=False,
    )


def backfill(config: Mapping[str, Any]) -> Check:
    """Slurm's own scheduler takes over when the bridge stands down."""
    ok = config["scheduler_type"] == "sched/backfill"
    return Check("fallback", ok, str(config["scheduler_type"]), "set SchedulerType=sched/backfill", required=False)


def burst(parameters: Mapping[str, Any]) -> Check:
    """The default depth of 100 lets a burst of released jobs wait for many scheduler passes."""
    depth, delay = int(parameters.get("default_queue_depth", 100)), int(parameters.get("batch_sched_delay", 3))
    return Check(
        "start latency",
        depth >= DEEP_QUEUE and delay == 0,
        f"default_queue_depth {depth}, batch_sched_delay {delay} s",
        "add batch_sched_delay=0,default_queue_depth=10000 to SchedulerParameters",
        required=False,
    )


def memory(config: Mapping[str, Any]) -> Check:
    """Ended jobs must stay known from one reading to the next."""
    seconds = int(config["min_job_age"] or 0)
    return Check(
        "job memory", seconds >= SHORTEST_MEMORY_S, f"MinJobAge {seconds} s", "set MinJobAge=300", required=False
    )
