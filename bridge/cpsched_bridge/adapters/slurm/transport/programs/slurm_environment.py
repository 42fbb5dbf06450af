"""Define the environment of Slurm's programs, independent of the bridge's own."""

from __future__ import annotations

import os
from collections.abc import Mapping

KEPT_VARIABLES = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Variables that identify the cluster and the user."""
FIXED_ENVIRONMENT = {
    "LC_ALL": "C",
    "SLURM_TIME_FORMAT": "%s",
    "TZ": "UTC0",
    "SLURM_BITSTR_LEN": "0",
    "INPUTRC": os.devnull,
}
"""Settings for untranslated messages, times in Unix seconds, and complete task lists of arrays, not only 64 characters.

- Without a named time zone, the C library opens the host's time zone file for each printed time. That takes most of the
  CPU time of a squeue that prints thousands of jobs.
- While scontrol reads commands, the user's readline settings must not bind keys.
"""
_DROPPED_PREFIXES = ("SLURM_", "SLURMDB_", "SCONTROL_", "SQUEUE_", "SINFO_", "SACCT_", "SACCTMGR_", "SPRIO_", "SSHARE_")


def build_environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without settings for Slurm's programs.

    Such settings select another cluster, change the output, or belong to an enclosing job.
    """
    kept = {
        name: value
        for name, value in (os.environ if own is None else own).items()
        if name in KEPT_VARIABLES or name.startswith("SLURM_SACK") or not name.startswith(_DROPPED_PREFIXES)
    }
    return kept | FIXED_ENVIRONMENT
