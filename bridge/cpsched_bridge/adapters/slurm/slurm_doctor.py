"""Check a Slurm cluster for the requirements of control mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from cpsched.errors import abbreviate
from cpsched.formatting import format_count
from cpsched.site.multifactor import ClusterSize
from cpsched_bridge.adapters.slurm.policy.policy_parsing import SitePolicySnapshot
from cpsched_bridge.adapters.slurm.policy.sprio_comparison import SprioComparison, compare_with_sprio, parse_sprio
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.transport.programs.slurm_releases import parse_release
from cpsched_bridge.ports import Check, UnusableObject

CLOCK_TOLERANCE_S = 3
SHORTEST_MEMORY_S = 60
"""Minimum `MinJobAge`:

below it, slurmctld might forget an ended job between two readings of a bridge that backs off.
"""
DEEP_QUEUE = 1000
SLOWEST_READING_S, MOST_CALLS = 60, 8
"""Maximum duration of a reading, and its number of calls; beyond this duration the dead-man timer acts."""
MOST_NAMED = 5
"""Maximum number of jobs, limits or partitions that a check names."""


def run_checks(facts: Mapping[str, Any], speaks: str = "") -> list[Check]:
    """Return all checks of the facts from `SlurmTransport.gather_facts`.

    `speaks` names the transport and the reason for choosing it.
    """
    config = facts["config"]
    parameters = config["scheduler_parameters"] or {}
    found = [
        Check("controller", True, f"{config['cluster_name']}, Slurm {config['version']}"),
        *([Check("transport", True, speaks)] if speaks else []),
        check_privilege(facts),
        check_accounting(facts),
        check_versions(facts),
        check_job_shrink(parameters),
        check_scheduler_intervals(parameters),
        check_preemption(config),
        check_select_type(config),
        check_topology(facts),
        check_gpu_tracking(config),
        check_clocks(int(facts["clock_ahead_s"])),
        check_submit_plugin(config),
        check_backfill(config),
        check_release_burst(parameters),
        check_min_job_age(config),
        check_priority_type(config),
        check_site_factor(config),
        *([check_call_limit(facts["rate_limit"], bool(facts["pyslurm"]))] if facts.get("rate_limit") else []),
    ]
    return [dataclasses.replace(check, mend="") if check.ok else check for check in found]


def run_policy_checks(
    picture: SitePolicySnapshot | None, failures: Mapping[str, str], shown: str, records: SlurmRecords
) -> list[Check]:
    """Return checks that the site's policy is readable and yields the priorities that `sprio` shows.

    `shown` is the output of `sprio`.
    """
    found = [check_policy_reading(picture, failures)]
    if picture is not None:
        cpus = sum(node["effective_cpus"] or 0 for node in records.nodes)
        machine = ClusterSize(len(records.nodes), cpus)
        compared = compare_with_sprio(parse_sprio(shown), records.jobs, picture, machine, records.now_s)
        found += [check_priorities(compared, picture), check_unmodelled_limits(picture), check_unmanaged_jobs(records)]
    return [dataclasses.replace(check, mend="") if check.ok else check for check in found]


def check_usable_objects(unusable: Sequence[UnusableObject]) -> Check:
    """Report objects with an unusable field; only these objects are left out of the plan."""
    ok = not unusable
    return Check(
        "objects",
        ok,
        "all that Slurm shows can be read" if ok else f"left out: {abbreviate(unusable, MOST_NAMED, '; ')}",
        ""
        if ok
        else "correct the field if it is wrong, otherwise report it with the output of `scontrol show` for the object; "
        "Slurm schedules its jobs",
        required=False,
    )


def check_policy_reading(picture: SitePolicySnapshot | None, failures: Mapping[str, str]) -> Check:
    """Check that the site's policy can be read.

    Without accounting, a cluster has no shares and limits, and the check still passes.
    """
    if picture is None:
        why = "; ".join(failures.values()) or "no answer"
        return Check("site policy", False, why, "let scontrol, sacctmgr and sshare run here as the bridge", False)
    site = picture.site
    kind = picture.rules.kind
    enforced = "enforced" if site.limits_hold else "not enforced"
    detail = f"{kind}, {len(site.accounts.associations):,} associations, {len(site.qos)} QOS, limits {enforced}"
    lost = {name: why for name, why in failures.items() if name in ("qos", "shares", "state") and site.limits_hold}
    what = f"{detail}; no {', '.join(f'{name} ({why})' for name, why in lost.items())}" if lost else detail
    return Check("site policy", not lost, what, "let sacctmgr and sshare run here as the bridge", False)


def check_priorities(compared: SprioComparison, picture: SitePolicySnapshot) -> Check:
    """Check that Slurm's priorities of jobs that are not held equal the computed priorities."""
    different = compared.differences
    detail = f"equal to sprio on {compared.jobs - len(different)} of {format_count(compared.jobs, 'job')} not held"
    if picture.rules.kind == "basic":
        detail = "priority/basic: jobs go in order of arrival"
    elif not compared.jobs:
        detail = "no pending job that is not held: nothing to compare with sprio"
    if different:
        detail += "; " + "; ".join(map(str, different[:MOST_NAMED]))
    return Check(
        "priorities",
        not different,
        detail,
        "compare the named factor with `sprio -l`; a job_submit or site_factor plugin may add an unknown amount",
        required=False,
    )


def check_unmodelled_limits(picture: SitePolicySnapshot) -> Check:
    """Report limits that are not modelled.

    Slurm rejects a start that exceeds one, and the job keeps waiting.
    """
    odd = picture.unmodelled
    return Check(
        "limits",
        not odd,
        f"not modelled: {abbreviate(odd, MOST_NAMED)}" if odd else "all that are set are modelled",
        "no action needed: Slurm refuses a start that such a limit forbids, and the job backs off",
        required=False,
    )


def check_unmanaged_jobs(records: SlurmRecords) -> Check:
    """Report partitions that contain both unmanaged and held jobs.

    An unmanaged job that does not fit blocks all released jobs below it in its partition.
    """
    free: set[str] = set()
    held: set[str] = set()
    for record in records.jobs:
        if record["state"] == "PENDING":
            (free if record["priority"] else held).update((record["partition"] or "").split(","))
    mixed = sorted(free & held)
    return Check(
        "partitions",
        not mixed,
        f"held and free jobs wait side by side in {', '.join(mixed[:MOST_NAMED])}" if mixed else "none managed in part",
        "let the bridge hold every job of a partition: a pending unmanaged job blocks released jobs below it, "
        "unless options.boost permits raising their priority",
        required=False,
        mode="control",
    )


def check_privilege(facts: Mapping[str, Any]) -> Check:
    """Check that the bridge's user has sufficient privilege.

    Operator suffices for holds, releases and node lists. root and SlurmUser also suffice.
    """
    user, level = facts["user"], facts["admin_level"]
    born = facts["uid"] == 0 or user == facts["config"]["slurm_user_name"]
    if level is None and not born:
        words = f"{user}: AdminLevel not known, since the accounting database does not answer"
        return Check("privilege", False, words, "start slurmdbd; commands are refused if it is too low", required=False)
    return Check(
        "privilege",
        born or level in ("Operator", "Administrator"),
        f"{user}: {'super user' if born else f'AdminLevel {level}'}",
        f"sacctmgr modify user where name={user} set AdminLevel=Operator",
    )


def check_accounting(facts: Mapping[str, Any]) -> Check:
    """Check that the accounting database answers.

    Without it, the bridge learns run times only from the jobs that the controller remembers.
    """
    kind = facts["config"].get("accounting_storage_type")
    ok = not kind or bool(facts.get("accounting_answers", True))
    words = f"{kind} answers" if kind else "no accounting database configured"
    return Check(
        "accounting",
        ok,
        words if ok else f"{kind} does not answer: run times are learned from what the controller remembers, and later",
        "start slurmdbd; the bridge retries",
        required=False,
    )


def check_versions(facts: Mapping[str, Any]) -> Check:
    """Check that neither the clients nor the client library are newer than the controller."""
    controller, clients = str(facts["config"]["version"] or ""), str(facts["clients"] or "")
    pyslurm = facts.get("pyslurm")
    ok = not clients or not controller or parse_release(clients) <= parse_release(controller)
    return Check(
        "versions",
        ok,
        f"controller {controller}, clients here {clients or 'unknown'}, {f'pyslurm {pyslurm}, ' if pyslurm else ''}"
        f"nodes {', '.join(facts['node_versions']) or 'unknown'}",
        f"install Slurm clients{' and a pyslurm' if pyslurm else ''} that are not newer than slurmctld",
    )


def check_call_limit(limit: Mapping[str, float], by_pyslurm: bool) -> Check:
    """Check whether slurmctld's call limit (`rl_enable`) slows the bridge down.

    A reading needs up to 8 calls and a start 1 to 4. pyslurm does not respect the limit: its calls sleep until their
    deadline and are then killed before they finish.
    """
    mend = (
        "run the bridge and the dead-man timer as SlurmUser, which is exempt; or raise rl_bucket_size and "
        "rl_refill_rate in SlurmctldParameters; install this release's job_submit.lua, and set options.transport=cli, "
        "which keeps to the limit"
    )
    too_slow = limit["per_s"] * SLOWEST_READING_S < MOST_CALLS
    detail = f"rl_enable: {limit['bucket']:g} calls at once, {limit['per_s']:g} more each second"
    return Check("call limit", False, detail, mend, required=by_pyslurm or too_slow)


def check_job_shrink(parameters: Mapping[str, Any]) -> Check:
    """Check that `disable_job_shrink` is set.

    Without it, a node list would shrink a job that has just started.
    """
    ok = bool(parameters.get("disable_job_shrink"))
    mend = "add disable_job_shrink to SchedulerParameters"
    return Check("job shrink", ok, "disabled" if ok else "allowed", mend, mode="control")


def check_scheduler_intervals(parameters: Mapping[str, Any]) -> Check:
    """Check that both of Slurm's scheduling loops are enabled; otherwise released jobs never start."""
    main, backfill_s = parameters.get("sched_interval", 60), parameters.get("bf_interval", 30)
    off = [name for name, value in (("sched_interval", main), ("bf_interval", backfill_s)) if str(value) == "-1"]
    return Check(
        "scheduler intervals",
        not off,
        f"sched_interval {main} s, bf_interval {backfill_s} s",
        f"remove {', '.join(f'{name}=-1' for name in off)} from SchedulerParameters",
    )


def check_preemption(config: Mapping[str, Any]) -> Check:
    """Check that preemption is off; preempted jobs would lose nodes that the decision relies on."""
    kind, mode = config["preempt_type"], str(config["preempt_mode"] or "OFF").upper()
    ok = kind in (None, "", "preempt/none") and mode == "OFF"
    return Check("preemption", ok, f"{kind or 'none'}, mode {mode}", "set PreemptType=preempt/none", mode="control")


def check_select_type(config: Mapping[str, Any]) -> Check:
    """Check the node selection plugin.

    The translation requires cons_tres, allocating cores rather than whole sockets or boards.
    """
    parameters = config["select_type_parameters"] or ()
    whole = any(part in word.upper() for word in parameters for part in ("SOCKET", "BOARD"))
    ok = config["select_type"] == "select/cons_tres" and not whole
    mend = "set SelectType=select/cons_tres and SelectTypeParameters=CR_Core_Memory (or CR_Core, CR_CPU, CR_CPU_Memory)"
    return Check("node selection", ok, f"{config['select_type']} {', '.join(parameters)}", mend)


def check_topology(facts: Mapping[str, Any]) -> Check:
    """Report the topology plugins configured in slurm.conf or topology.yaml.

    A start names its nodes, so the plugin does not choose them.
    """
    plugins = ", ".join(facts["topology_plugins"])
    return Check(
        "topology",
        not plugins,
        f"{plugins}: the bridge chooses nodes without it, and leaves jobs to Slurm if Slurm may refuse their nodes"
        if plugins
        else f"{facts['config'].get('topology_plugin') or 'none'}: decides on no job",
        "no action needed; in control mode the dispatcher chooses the nodes",
        required=False,
        mode="control",
    )


def check_gpu_tracking(config: Mapping[str, Any]) -> Check:
    """Check that accounting tracks every GPU type.

    pyslurm shows GPUs requested with --gpus only if accounting tracks them.
    """
    tracked = set(config["accounting_storage_tres"] or ())
    missing = [f"gres/{name}" for name in config["gres_types"] or () if f"gres/{name}" not in tracked]
    return Check(
        "generic resources",
        not missing,
        f"not tracked: {', '.join(missing)}" if missing else "tracked",
        f"add {','.join(missing)} to AccountingStorageTRES (needs slurmdbd); without, jobs that use --gpus are misread",
        required=False,
    )


def check_clocks(ahead_s: int) -> Check:
    """Check that the clocks agree; begin times, reservations and waits use the controller's clock."""
    ok = abs(ahead_s) <= CLOCK_TOLERANCE_S
    return Check(
        "clocks", ok, f"the controller's clock is {ahead_s:+d} s from this host's", "synchronise both with NTP"
    )


def check_submit_plugin(config: Mapping[str, Any]) -> Check:
    """Check that the job submit plugin is configured.

    Without it, the bridge holds new jobs only when it first sees them, which may be too late.
    """
    ok = "lua" in (config["job_submit_plugins"] or ())
    return Check(
        "submit plugin",
        ok,
        "JobSubmitPlugins has lua" if ok else "no lua in JobSubmitPlugins: new jobs are held when first seen",
        "install job_submit.lua (`cpsched deploy-files` writes it) and set JobSubmitPlugins=lua",
        required=False,
        mode="control",
    )


def check_backfill(config: Mapping[str, Any]) -> Check:
    """Check that Slurm uses backfill, because its own scheduler takes over when the bridge pauses."""
    ok = config["scheduler_type"] == "sched/backfill"
    return Check("fallback", ok, str(config["scheduler_type"]), "set SchedulerType=sched/backfill", required=False)


def check_release_burst(parameters: Mapping[str, Any]) -> Check:
    """Check the queue depth and the delay of the main scheduler.

    With Slurm's defaults, a burst of released jobs needs many scheduler passes.
    """
    depth, delay = int(parameters.get("default_queue_depth", 100)), int(parameters.get("batch_sched_delay", 3))
    return Check(
        "start latency",
        depth >= DEEP_QUEUE and delay == 0,
        f"default_queue_depth {depth}, batch_sched_delay {delay} s",
        "add batch_sched_delay=0,default_queue_depth=10000 to SchedulerParameters",
        required=False,
        mode="control",
    )


def check_min_job_age(config: Mapping[str, Any]) -> Check:
    """Check that slurmctld remembers ended jobs from one reading to the next."""
    seconds = int(config["min_job_age"] or 0)
    return Check(
        "job memory", seconds >= SHORTEST_MEMORY_S, f"MinJobAge {seconds} s", "set MinJobAge=300", required=False
    )


def check_priority_type(config: Mapping[str, Any]) -> Check:
    """Check the priority plugin; only priority/multifactor supports boosts."""
    kind = str(config["priority_type"] or "priority/basic")
    ok = kind == "priority/multifactor"
    return Check("priority type", ok, kind, "set PriorityType=priority/multifactor", mode="advise")


def check_site_factor(config: Mapping[str, Any]) -> Check:
    """Check that no site factor plugin is configured; it would overwrite boosts."""
    plugin = config["priority_site_factor_plugin"]
    ok = not plugin or str(plugin).endswith("/none")
    mend = "remove PrioritySiteFactorPlugin from slurm.conf, because it would overwrite boosts; or use another mode"
    return Check("site factor", ok, "no plugin sets it" if ok else f"set by {plugin}", mend, mode="advise")
