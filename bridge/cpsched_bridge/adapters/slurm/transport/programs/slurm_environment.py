"""The environment of Slurm's own programs: nothing in that of the bridge changes what they do or how they say it."""

from __future__ import annotations

import os
from collections.abc import Mapping

KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Where the cluster is, and as whom to speak to it."""
FIXED = {
    "LC_ALL": "C",
    "SLURM_TIME_FORMAT": "%s",
    "TZ": "UTC0",
    "SLURM_BITSTR_LEN": "0",
    "INPUTRC": os.devnull,
}
"""Untranslated messages, times in Unix seconds, and all tasks of an array instead of the first 64 characters.

- Without a named time zone the C library looks for the host's file anew for each time that is printed: most of the CPU
  time of a squeue that prints thousands of jobs.
- Where scontrol reads commands, no file of the user's may bind keys.
"""
_DROPPED = ("SLURM_", "SLURMDB_", "SCONTROL_", "SQUEUE_", "SINFO_", "SACCT_", "SACCTMGR_", "SPRIO_", "SSHARE_")


def environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's own, without settings of Slurm's programs: of another cluster, of output, of a job around it."""
    kept = {
        name: value
        for name, value in (os.environ if own is None else own).items()
        if name in KEPT or name.startswith("SLURM_SACK") or not name.startswith(_DROPPED)
    }
    return kept | FIXED
