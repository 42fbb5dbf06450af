"""As whom the bridge speaks to Slurm. The bridge asks for that itself, and not by its pyslurm child: `sacctmgr` goes on
knocking at an accounting database that is gone, and must not take the time of the controller's answers.
"""

from __future__ import annotations

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_calls import output_of


def privilege_of(user: str) -> Record:
    """The user's AdminLevel, and whether the accounting database answers: None where neither side can tell.

    The controller keeps the levels in memory, so that it can be asked while the database is away.
    """
    told = output_of(["sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={user}", "format=adminlevel"])
    if told is not None:
        words = told.split()
        return {"admin_level": words[0] if words else "", "accounting_answers": True}
    kept = output_of(["scontrol", "show", "assoc_mgr", f"users={user}", "flags=users"]) or ""
    levels = [word.partition("=")[2] for word in kept.split() if word.startswith("AdminLevel=")]
    return {"admin_level": levels[0] if levels else None, "accounting_answers": False}
