"""List what cpsched makes of the options in slurm.conf that change no priority and no scheduling loop.

The names come from slurm.conf(5) and the sources of Slurm 22.05 to 26.11. Of other lists of options,
`SchedulerParameters` belong to the twin, `PreemptParameters` to the order of victims, and `SelectTypeParameters` to the
nodes and jobs that they describe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cpsched.slurm_text.option_lists import OptionList


class KnownOptions(NamedTuple):
    """The options of one setting: those that change starts, with what Slurm does, and those that do not."""

    unmodelled: Mapping[str, str]
    harmless: frozenset[str]


def _split_names(names: str) -> frozenset[str]:
    return frozenset(names.split())


CONTROLLER_OPTIONS: Mapping[str, KnownOptions] = {
    "SlurmctldParameters": KnownOptions(
        {"max_powered_nodes": "Slurm starts no job that would power up more nodes"},
        _split_names(
            "allow_user_triggers cloud_dns cloud_reg_addrs conmgr_connect_timeout conmgr_max_connections "
            "conmgr_quiesce_timeout conmgr_read_timeout conmgr_threads conmgr_use_poll conmgr_wait_write_delay "
            "conmgr_write_timeout disable_triggers enable_async_reply enable_configless enable_expedited_requeue "
            "enable_rpc_queue enable_stepmgr health_check_report idle_on_node_suspend max_dbd_msg_action "
            "no_quick_restart node_reg_mem_percent power_save_interval power_save_min_interval "
            "preempt_send_user_signal reboot_from_controller reconfig_on_restart rl_bucket_size rl_enable rl_log_freq "
            "rl_refill_period rl_refill_rate rl_table_size threadpool threadpool_preallocate threadpool_preserve "
            "user_resv_delete validate_nodeaddr_threads workerpool_threads"
        ),
    ),
    "DependencyParameters": KnownOptions(
        {}, _split_names("disable_remote_singleton kill_invalid_depend max_depend_depth")
    ),
    "LaunchParameters": KnownOptions(
        {},
        _split_names(
            "batch_step_set_cpu_freq cray_net_exclusive disable_send_gids enable_nss_slurm "
            "interactive_step_set_cpu_freq lustre_no_flush mem_sort mpir_use_nodeaddr slurmstepd_memlock "
            "slurmstepd_memlock_all srun_exclusive_allocation test_exec ulimit_pam_adopt use_interactive_step"
        ),
    ),
    "TopologyParam": KnownOptions(
        {
            "dragonfly": "Slurm spreads large jobs over leaf switches",
            "topomaxsizeunroll": "Slurm may try only some of the numbers of nodes in a job's range",
        },
        _split_names("blockasnoderank noctldinaddrany noinaddrany routepart routetree switchasnoderank topooptional"),
    ),
}
"""Options by setting, in lower case.

Federations, in which disable_remote_singleton counts, are not managed. A job that Slurm expedites is left to Slurm.
"""


def find_unmodelled_options(config: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each option that changes starts but is not modelled, and for each unknown one.

    `config` is the configuration as `parse_config` returns it.
    """
    for setting, known in CONTROLLER_OPTIONS.items():
        options = OptionList(config.get(setting, ""))
        for name, effect in known.unmodelled.items():
            if options.has(name):
                yield f"{setting}: {name} is not modelled: {effect}"
        for remark in options.list_remarks((), (), known.unmodelled.keys() | known.harmless):
            if remark.kind == "unknown":
                yield f"{setting}: {remark}"
