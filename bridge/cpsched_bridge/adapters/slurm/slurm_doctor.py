"""Check whether a Slurm cluster meets the requirements of control mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from cpsched.dispatchers.slurm.scheduler_parameters import DISABLED, SchedulerParameters, read_scheduler_parameters
from cpsched.errors import escape_controls, join_abbreviated
from cpsched.formatting import format_count
from cpsched.site.accounts import AssociationTree
from cpsched.site.multifactor_priority import ClusterSize, PriorityPolicy
from cpsched.site.preemption import PreemptionRules
from cpsched.slurm_text.configuration import LINEAR, SlurmConfig, parse_maintenance_release, parse_release
from cpsched.slurm_text.option_lists import OptionList, OptionRemark
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.slurm.policy.sprio_comparison import SprioComparison, compare_with_sprio, parse_sprio
from cpsched_bridge.adapters.slurm.slurm_records import NODE_FILTER_PARAMETER, SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.ports import ReadinessCheck, UnusableObject

CLOCK_TOLERANCE_S = 3
MIN_MIN_JOB_AGE_S = 60
"""Minimum `MinJobAge` in seconds.

Below it, slurmctld might forget an ended job between two readings of a bridge that backs off.
"""
DEEP_QUEUE_JOBS = 1000
PREEMPT_TYPES = ("preempt/qos", "preempt/partition_prio")
MAX_READING_S, MAX_READING_CALLS = 60, 8
"""Maximum duration of a reading in seconds, and maximum number of its calls.

The dead-man timer acts after this duration.
"""
FIELD_SETTINGS = {
    NODE_FILTER_PARAMETER: "--extra",
    "time_min_as_soft_limit": "--time-min",
    "ENFORCE_BINDING_GRES": "generic resources, unless they use --gres-flags=disable-binding,",
    "MULTIPLE_SHARING_GRES_PJ": "GPUs, on nodes whose GPUs can be shared,",
}
"""Items of SchedulerParameters and SelectTypeParameters, and the jobs whose fields they turn into another request."""
BOOSTS_LAST_SINCE = (26, 5, 3)
"""First release whose backfill restores no earlier priority."""
MAX_LISTED_ITEMS = 5
"""Maximum number of jobs, limits or partitions that a check lists."""


def run_slurm_doctor_checks(
    facts: Mapping[str, Any], transport_text: str = "", reads_policy: bool = True
) -> list[ReadinessCheck]:
    """Return all checks of the facts from `SlurmCliTransport.gather_doctor_facts`.

    - `transport_text`: the transport and the reason for the choice.
    - `reads_policy`: whether `options.site_policy` is set.
    """
    config: SlurmConfig = facts["config"]
    read = read_scheduler_parameters(config.scheduler_parameters)
    parameters = read.parameters
    found = [
        ReadinessCheck("controller", True, f"{config.cluster_name}, Slurm {config.version}"),
        *([ReadinessCheck("transport", True, transport_text)] if transport_text else []),
        check_privilege(facts),
        check_accounting(facts),
        check_versions(facts),
        check_job_shrink(config.scheduler_parameters),
        check_option_words(read.remarks),
        check_scheduler_intervals(parameters),
        check_preemption(config, reads_policy),
        check_select_type(config),
        check_topology(facts),
        check_gres_tracking(config),
        check_clocks(int(facts["clock_ahead_s"])),
        check_submit_plugin(config),
        check_backfill(config),
        check_start_latency_settings(parameters),
        check_min_job_age(config),
        check_priority_type(config),
        check_site_factor(config),
        check_boosts_outlast_backfill(config),
        check_settings_of_job_fields(config),
        check_controller_options(facts["unmodelled_options"]),
        *([check_rpc_rate_limit(facts["rate_limit"], bool(facts["pyslurm"]))] if facts.get("rate_limit") else []),
    ]
    return [dataclasses.replace(check, fix="") if check.ok else check for check in found]


def run_policy_checks(
    reading: SitePolicyReading | None, failures: Mapping[str, str], shown: str | None, records: SlurmRecords
) -> list[ReadinessCheck]:
    """Return checks of the site's policy and a comparison of priorities with `sprio`.

    `shown` is the output of `sprio`, or None if the command failed.
    """
    found = [check_policy_reading(reading, failures)]
    if reading is not None:
        policy = reading.policy
        cpus = sum(node.effective_cpus or 0 for node in records.nodes)
        machine = ClusterSize(len(records.nodes), cpus)
        compared = None
        if shown is not None:
            compared = compare_with_sprio(parse_sprio(shown), records.jobs, reading, machine, records.now_s)
        found += [
            check_priorities_match_sprio(compared, policy.priority),
            check_unmodelled_limits(reading),
            check_job_associations(policy.accounts, records),
            check_partitions_mixing_unmanaged_jobs(records),
        ]
        if policy.preemption is not None:
            found.append(check_preempt_modes(policy.preemption, failures))
    return [dataclasses.replace(check, fix="") if check.ok else check for check in found]


def check_job_associations(accounts: AssociationTree, records: SlurmRecords) -> ReadinessCheck:
    """Report pending jobs without a known association, whose limits and shares do not count.

    Without accounting, the root is the only association, and the check passes.
    """
    is_kept = len(accounts.associations) > 1
    lost = {
        f"user {job.user_name or job.user_id} in account {job.account}"
        for job in records.jobs
        if is_kept and job.state == slurm_states.PENDING and job.account
        if all(accounts.find(job.account, job.user_name, partition) is None for partition in job.partition.split(","))
    }
    return ReadinessCheck(
        "associations",
        not lost,
        f"not found for pending jobs of {join_abbreviated(sorted(map(escape_controls, lost)), MAX_LISTED_ITEMS)}"
        if lost
        else "known for every pending job with an account",
        "no limit or share of these users counts. Compare `squeue -o '%i %U %a'` with `scontrol show assoc_mgr "
        "flags=assoc`, and check that slurmctld's host has the users",
        required=False,
    )


def check_for_unusable_objects(unusable: Sequence[UnusableObject]) -> ReadinessCheck:
    """Report objects that the plan omits, because they have an unusable field."""
    ok = not unusable
    return ReadinessCheck(
        "objects",
        ok,
        "all Slurm objects can be read" if ok else f"ignored: {join_abbreviated(unusable, MAX_LISTED_ITEMS, '; ')}",
        ""
        if ok
        else "if the field is wrong, correct it; otherwise report it with the object's `scontrol show` output. Slurm "
        "schedules the jobs that depend on these objects",
        required=False,
    )


def check_policy_reading(reading: SitePolicyReading | None, failures: Mapping[str, str]) -> ReadinessCheck:
    """Check that the site's policy can be read.

    Without accounting, a cluster has neither shares nor limits, and the check still passes.
    """
    if reading is None:
        why = "; ".join(failures.values()) or "no response"
        return ReadinessCheck(
            "site policy",
            False,
            why,
            "allow the bridge's user to run scontrol, sacctmgr and sshare on this host",
            False,
        )
    site = reading.policy
    kind = site.priority.kind
    enforced = "enforced" if site.limits_hold else "not enforced"
    detail = f"{kind}, {len(site.accounts.associations):,} associations, {len(site.qos)} QOS, limits {enforced}"
    detail += f", licenses {', '.join(f'{name} {n:,}' for name, n in site.licenses.items())}" if site.licenses else ""
    lost = {name: why for name, why in failures.items() if name in ("qos", "shares", "state") and site.limits_hold}
    what = f"{detail}; not available: {', '.join(f'{name} ({why})' for name, why in lost.items())}" if lost else detail
    return ReadinessCheck(
        "site policy", not lost, what, "allow the bridge's user to run sacctmgr and sshare on this host", False
    )


def check_priorities_match_sprio(compared: SprioComparison | None, priority: PriorityPolicy) -> ReadinessCheck:
    """Check that the computed priorities of jobs without a hold equal Slurm's."""
    if priority.kind == "basic":
        return ReadinessCheck("priorities", True, "priority/basic: jobs are ordered by arrival", required=False)
    if compared is None:
        remedy = "allow the bridge's user to run sprio on this host"
        return ReadinessCheck("priorities", False, "not compared: sprio did not respond", remedy, required=False)
    different = compared.differences
    detail = (
        f"equal to sprio's for {compared.jobs - len(different)} of {format_count(compared.jobs, 'job')} without a hold"
    )
    if not compared.jobs:
        detail = "not compared: every pending job is held or names several partitions"
    if different:
        detail += "; " + "; ".join(map(str, different[:MAX_LISTED_ITEMS]))
    return ReadinessCheck(
        "priorities",
        not different,
        detail,
        "compare this factor with `sprio -l`; a job_submit or site_factor plugin may add an amount",
        required=False,
    )


def check_unmodelled_limits(reading: SitePolicyReading) -> ReadinessCheck:
    """Report limits that are not modelled.

    Slurm rejects a start that exceeds such a limit, and the job keeps waiting.
    """
    odd = reading.unmodelled
    return ReadinessCheck(
        "limits",
        not odd,
        f"not modelled: {join_abbreviated(odd, MAX_LISTED_ITEMS)}" if odd else "all limits that are set are modelled",
        "no action needed: Slurm rejects a start that exceeds such a limit, and the job backs off",
        required=False,
    )


def check_partitions_mixing_unmanaged_jobs(records: SlurmRecords) -> ReadinessCheck:
    """Report partitions that contain both unmanaged and held jobs.

    An unmanaged job that does not fit blocks all released jobs below it in its partition.
    """
    free: set[str] = set()
    held: set[str] = set()
    for job in records.jobs:
        if job.state == slurm_states.PENDING:
            (free if job.priority else held).update(job.partition.split(","))
    mixed = sorted(free & held)
    return ReadinessCheck(
        "partitions",
        not mixed,
        f"with both held and unmanaged jobs: {', '.join(mixed[:MAX_LISTED_ITEMS])}"
        if mixed
        else "none with both held and unmanaged jobs",
        "let the bridge hold all jobs of a partition. A pending unmanaged job blocks released jobs with lower "
        "priority, unless options.boost allows the bridge to raise their priority",
        required=False,
        mode="control",
    )


def check_privilege(facts: Mapping[str, Any]) -> ReadinessCheck:
    """Check that the bridge's user has sufficient privileges.

    Operator suffices for holds, releases and node lists. root and SlurmUser also suffice.
    """
    user, level = facts["user"], facts["admin_level"]
    born = facts["uid"] == 0 or user == facts["config"].slurm_user_name
    if level is None and not born:
        text = f"{user}: AdminLevel is unknown, because the accounting database does not respond"
        return ReadinessCheck(
            "privilege",
            False,
            text,
            "start slurmdbd; if AdminLevel is too low, Slurm rejects the bridge's commands",
            required=False,
        )
    return ReadinessCheck(
        "privilege",
        born or level in ("Operator", "Administrator"),
        f"{user}: {'superuser' if born else f'AdminLevel {level}'}",
        f"sacctmgr modify user where name={user} set AdminLevel=Operator",
    )


def check_accounting(facts: Mapping[str, Any]) -> ReadinessCheck:
    """Check that the accounting database answers.

    Without it, the bridge learns run times only from the jobs that the controller remembers.
    """
    kind = facts["config"].accounting_storage_type
    ok = not kind or bool(facts.get("accounting_answers", True))
    text = f"{kind} responds" if kind else "no accounting database configured"
    return ReadinessCheck(
        "accounting",
        ok,
        text if ok else f"{kind} does not respond; run times are learned only from jobs that slurmctld remembers",
        "start slurmdbd; the bridge retries the query",
        required=False,
    )


def check_versions(facts: Mapping[str, Any]) -> ReadinessCheck:
    """Check that the clients on this host are not newer than the controller."""
    controller, clients = str(facts["config"].version or ""), str(facts["clients"] or "")
    pyslurm = facts.get("pyslurm")
    ok = not clients or not controller or parse_release(clients) <= parse_release(controller)
    return ReadinessCheck(
        "versions",
        ok,
        f"controller {controller}, clients on this host {clients or 'unknown'}, "
        f"{f'pyslurm {pyslurm}, ' if pyslurm else ''}nodes {', '.join(facts['node_versions']) or 'unknown'}",
        f"install Slurm clients{' and a pyslurm release' if pyslurm else ''} that are not newer than slurmctld",
    )


def check_rpc_rate_limit(limit: Mapping[str, float], by_pyslurm: bool) -> ReadinessCheck:
    """Check whether slurmctld's call limit (`rl_enable`) slows the bridge down.

    A reading needs up to 8 calls, and a start needs 1 to 4. pyslurm does not respect the limit: its calls sleep until
    their deadline and are then killed.
    """
    remedy = (
        "run the bridge and the dead-man timer as SlurmUser, which is exempt. Alternatively, raise rl_bucket_size and "
        "rl_refill_rate in SlurmctldParameters, install this release's job_submit.lua, and set options.transport=cli"
    )
    too_slow = limit["per_s"] * MAX_READING_S < MAX_READING_CALLS
    detail = f"rl_enable: bursts of up to {limit['bucket']:g} calls, otherwise {limit['per_s']:g} calls per second"
    return ReadinessCheck("call limit", False, detail, remedy, required=by_pyslurm or too_slow)


def check_job_shrink(parameters: str) -> ReadinessCheck:
    """Check that `disable_job_shrink` is set.

    Without it, a node list would shrink a job that has just started.
    """
    ok = OptionList(parameters).has("disable_job_shrink")
    remedy = "add disable_job_shrink to SchedulerParameters"
    return ReadinessCheck("job shrink", ok, "disabled" if ok else "allowed", remedy, mode="control")


def check_option_words(remarks: Sequence[OptionRemark]) -> ReadinessCheck:
    """Report words in `SchedulerParameters` that Slurm ignores, or reads differently than they look."""
    return ReadinessCheck(
        "scheduler parameters",
        not remarks,
        join_abbreviated(remarks, MAX_LISTED_ITEMS, "; ") or "every word is a known option",
        "correct or remove these words in SchedulerParameters; the bridge reads what Slurm reads",
        required=False,
    )


def check_scheduler_intervals(parameters: SchedulerParameters) -> ReadinessCheck:
    """Check that both of Slurm's scheduling loops, which start jobs, are enabled."""
    intervals_s = {"sched_interval": parameters.sched_interval, "bf_interval": parameters.bf_interval}
    off = [f"{name}=-1" for name, interval_s in intervals_s.items() if interval_s == DISABLED]
    return ReadinessCheck(
        "scheduler intervals",
        not off,
        ", ".join(f"{name} {interval_s} s" for name, interval_s in intervals_s.items()),
        f"remove {', '.join(off)} from SchedulerParameters",
    )


def check_preemption(config: SlurmConfig, reads_policy: bool = True) -> ReadinessCheck:
    """Check that preemption is off, or that the bridge supports its mode and rules."""
    kind, mode = config.preempt_type, str(config.preempt_mode or "OFF").upper()
    words = {word.strip() for word in mode.split(",")}
    off = words == {"OFF"}
    preempts = kind in PREEMPT_TYPES and words <= {"REQUEUE", "CANCEL", "PRIORITY", "OFF"}
    ok = (kind in (None, "", "preempt/none") and off) or (preempts and (off or reads_policy))
    remedy = "set PreemptMode to REQUEUE or CANCEL, or set PreemptType=preempt/none"
    remedy = "set options.site_policy: true, because the policy states which jobs may preempt" if preempts else remedy
    return ReadinessCheck("preemption", ok, f"{kind or 'none'}, mode {mode}", remedy, mode="control")


def check_preempt_modes(rules: PreemptionRules, failures: Mapping[str, str]) -> ReadinessCheck:
    """Check that no QOS or partition suspends preempted jobs.

    Also check that the preempting QOS could be read.
    """
    suspended = sorted(
        name for name in rules.classes if rules.preempting_classes_of(name) and rules.mode_of(name) == "suspend"
    )
    if suspended:
        detail = f"{rules.kind} {join_abbreviated(suspended, MAX_LISTED_ITEMS)}: PreemptMode=SUSPEND"
        return ReadinessCheck(
            "preempted jobs", False, detail, "set PreemptMode=REQUEUE or CANCEL there", mode="control"
        )
    if rules.kind == "qos" and "qos" in failures:
        remedy = "allow the bridge's user to run sacctmgr show qos on this host"
        return ReadinessCheck("preempted jobs", False, f"QOS cannot be read: {failures['qos']}", remedy, mode="control")
    names = [name for name in sorted(rules.classes) if rules.preempting_classes_of(name)]
    return ReadinessCheck(
        "preempted jobs",
        True,
        f"requeued or cancelled by Slurm: {join_abbreviated(names, MAX_LISTED_ITEMS) or 'none'}"
        + ("" if rules.victim_order is not None else "; preemption.choose has no effect with these PreemptParameters"),
        mode="control",
    )


def check_select_type(config: SlurmConfig) -> ReadinessCheck:
    """Check the node selection plugin.

    The translation requires cons_tres that allocates cores or whole sockets, not boards, or select/linear.
    """
    parameters = config.select_type_parameters or ()
    boards = any("BOARD" in word.upper() for word in parameters)
    ok = config.select_type == LINEAR or (config.select_type == "select/cons_tres" and not boards)
    fix = "set SelectType=select/cons_tres and SelectTypeParameters=CR_Core_Memory (or CR_Core, CR_CPU, CR_CPU_Memory)"
    return ReadinessCheck("node selection", ok, f"{config.select_type} {', '.join(parameters)}", fix)


def check_settings_of_job_fields(config: SlurmConfig) -> ReadinessCheck:
    """Report settings that turn another field of a job into a request which only Slurm can place."""
    options = OptionList(config.scheduler_parameters)
    words = {word.upper() for word in config.select_type_parameters or ()}
    found = [
        f"{name}: jobs with {what} are left to Slurm"
        for name, what in FIELD_SETTINGS.items()
        if name in words or options.has(name)
    ]
    return ReadinessCheck(
        "job fields",
        not found,
        "; ".join(found) or "no setting changes what a job's fields mean",
        "no action needed; `cpsched unmanaged` lists these jobs",
        required=False,
    )


def check_controller_options(unmodelled: Sequence[str]) -> ReadinessCheck:
    """Report options of slurm.conf that are not modelled, as `find_unmodelled_options` describes them."""
    return ReadinessCheck(
        "controller options",
        not unmodelled,
        join_abbreviated(unmodelled, MAX_LISTED_ITEMS, "; ") or "none changes starts",
        "no action needed: if Slurm rejects a start, the job backs off; remove words that Slurm ignores",
        required=False,
    )


def check_topology(facts: Mapping[str, Any]) -> ReadinessCheck:
    """Report the topology plugins configured in slurm.conf or topology.yaml.

    A start specifies its nodes, so the plugin does not choose them. The dispatcher chooses leaf switches and
    blocks as topology/tree and topology/block would.
    """
    plugins = ", ".join(facts["topology_plugins"])
    return ReadinessCheck(
        "topology",
        not plugins,
        f"{plugins}: the bridge chooses leaf switches and blocks; jobs whose nodes Slurm may reject are left to Slurm"
        if plugins
        else f"{facts['config'].topology_plugin or 'none'}: does not affect jobs",
        "no action needed; in control mode the dispatcher chooses the nodes",
        required=False,
        mode="control",
    )


def check_gres_tracking(config: SlurmConfig) -> ReadinessCheck:
    """Check that accounting tracks every type of generic resource.

    pyslurm shows GPUs requested with --gpus only if accounting tracks them.
    """
    tracked = set(config.accounting_storage_tres or ())
    missing = [f"gres/{name}" for name in config.gres_types or () if f"gres/{name}" not in tracked]
    return ReadinessCheck(
        "generic resources",
        not missing,
        f"not tracked: {', '.join(missing)}" if missing else "tracked",
        f"add {','.join(missing)} to AccountingStorageTRES (requires slurmdbd); otherwise, --gpus requests are misread",
        required=False,
    )


def check_clocks(ahead_s: int) -> ReadinessCheck:
    """Check that this host's clock agrees with slurmctld's, which the bridge uses."""
    ok = abs(ahead_s) <= CLOCK_TOLERANCE_S
    return ReadinessCheck(
        "clocks",
        ok,
        f"slurmctld's clock differs from this host's by {ahead_s:+d} s",
        "synchronize both clocks with NTP",
    )


def check_submit_plugin(config: SlurmConfig) -> ReadinessCheck:
    """Check that the job submit plugin is configured.

    Without it, the bridge holds new jobs only when it first sees them, which may be too late.
    """
    ok = "lua" in (config.job_submit_plugins or ())
    return ReadinessCheck(
        "submit plugin",
        ok,
        "JobSubmitPlugins contains lua"
        if ok
        else "JobSubmitPlugins lacks lua: the bridge holds new jobs when it first sees them",
        "install job_submit.lua (`cpsched deploy-files` writes it) and set JobSubmitPlugins=lua",
        required=False,
        mode="control",
    )


def check_backfill(config: SlurmConfig) -> ReadinessCheck:
    """Check that Slurm, which takes over when the bridge pauses, uses backfill."""
    ok = config.scheduler_type == "sched/backfill"
    return ReadinessCheck(
        "fallback", ok, str(config.scheduler_type), "set SchedulerType=sched/backfill", required=False
    )


def check_start_latency_settings(parameters: SchedulerParameters) -> ReadinessCheck:
    """Check the queue depth and the delay of the main scheduler.

    With Slurm's defaults, a burst of released jobs needs many scheduler passes.
    """
    depth, delay = parameters.default_queue_depth, parameters.batch_sched_delay
    return ReadinessCheck(
        "start latency",
        depth >= DEEP_QUEUE_JOBS and delay == 0,
        f"default_queue_depth {depth}, batch_sched_delay {delay} s",
        "add batch_sched_delay=0,default_queue_depth=10000 to SchedulerParameters",
        required=False,
        mode="control",
    )


def check_min_job_age(config: SlurmConfig) -> ReadinessCheck:
    """Check that slurmctld remembers ended jobs from one reading to the next."""
    seconds = int(config.min_job_age or 0)
    return ReadinessCheck(
        "job memory", seconds >= MIN_MIN_JOB_AGE_S, f"MinJobAge {seconds} s", "set MinJobAge=300", required=False
    )


def check_priority_type(config: SlurmConfig) -> ReadinessCheck:
    """Check the priority plugin. Only priority/multifactor supports boosts."""
    kind = str(config.priority_type or "priority/basic")
    ok = kind == "priority/multifactor"
    return ReadinessCheck("priority type", ok, kind, "set PriorityType=priority/multifactor", mode="advise")


def check_site_factor(config: SlurmConfig) -> ReadinessCheck:
    """Check that no site factor plugin is configured. It would overwrite boosts."""
    plugin = config.priority_site_factor_plugin
    ok = not plugin or str(plugin).endswith("/none")
    remedy = (
        "remove PrioritySiteFactorPlugin from slurm.conf, because the plugin overwrites boosts, or use another mode"
    )
    return ReadinessCheck("site factor", ok, "no plugin sets it" if ok else f"set by {plugin}", remedy, mode="advise")


def check_boosts_outlast_backfill(config: SlurmConfig) -> ReadinessCheck:
    """Say if backfill may undo a boost that is set while it runs (`_attempt_backfill` in backfill.c).

    This is no warning, because the bridge sets such a boost again.
    """
    release = str(config.version or "")
    lasts = parse_maintenance_release(release) >= BOOSTS_LAST_SINCE or config.scheduler_type != "sched/backfill"
    undone = f"Slurm {release}: backfill may undo a boost that is set while it runs, and the bridge sets it again"
    return ReadinessCheck("boosts", True, "backfill keeps them" if lasts else undone, required=False, mode="advise")
