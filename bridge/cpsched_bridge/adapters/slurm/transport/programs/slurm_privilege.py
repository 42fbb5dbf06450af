"""Query the AdminLevel of the bridge's user.

The bridge itself runs these queries, not its pyslurm child. `sacctmgr` keeps retrying an unreachable accounting
database, which must not delay the controller's answers.
"""

from __future__ import annotations

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.transport.programs.slurm_program_calls import run_and_read_output


def query_admin_level(user: str) -> Record:
    """Return the user's AdminLevel, and whether the accounting database answers.

    The level is None if neither the database nor the controller answers. The controller keeps the levels in memory, so
    it can answer while the database is down.
    """
    output = run_and_read_output(
        ["sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={user}", "format=adminlevel"]
    )
    if output is not None:
        words = output.split()
        return {"admin_level": words[0] if words else "", "accounting_answers": True}
    kept = run_and_read_output(["scontrol", "show", "assoc_mgr", f"users={user}", "flags=users"]) or ""
    levels = [word.partition("=")[2] for word in kept.split() if word.startswith("AdminLevel=")]
    return {"admin_level": levels[0] if levels else None, "accounting_answers": False}
