"""Define the environment of Slurm's programs."""

from __future__ import annotations

import os
from collections.abc import Mapping

KEPT_VARIABLES = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Variables that identify the cluster and the user."""
UNIX_TIME_FORMAT = "%s"
FIXED_ENVIRONMENT = {
    "LC_ALL": "C",
    "SLURM_TIME_FORMAT": UNIX_TIME_FORMAT,
    "TZ": "UTC0",
    "SLURM_BITSTR_LEN": "0",
    "INPUTRC": os.devnull,
}
"""Settings for untranslated messages, times in Unix seconds, and complete task lists of arrays.

- Without a named time zone, the C library opens the host's time zone file for each printed time. This takes most of
  squeue's CPU time when it prints thousands of jobs.
- The user's readline settings must not bind keys while scontrol reads commands.
"""
_DROPPED_PREFIXES = (
    "SLURM_", "SLURMDB_", "SCONTROL_", "SQUEUE_", "SINFO_", "SACCT_", "SACCTMGR_", "SPRIO_", "SSHARE_", "SCANCEL_",
)  # fmt: skip


def build_slurm_environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without unneeded Slurm settings.

    The omitted settings may select another cluster, change the output, or belong to an enclosing job.
    """
    kept = {
        name: value
        for name, value in (os.environ if own is None else own).items()
        if name in KEPT_VARIABLES or name.startswith("SLURM_SACK") or not name.startswith(_DROPPED_PREFIXES)
    }
    return kept | FIXED_ENVIRONMENT
