"""job_submit.lua in a separate Lua interpreter, with a stand-in for the table that slurmctld passes to the script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lupa import lua51  # the Lua that Slurm's plugin is linked with in Debian

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "slurm" / "job_submit.lua"
ALICE, BOB, BRIDGE, ROOT = 2001, 2002, 2100, 0
NO_VAL = 0xFFFFFFFE
RELEASE = 0xFFFFFFFF
WAIT = "bridge:wait"

NOW_S = 1000
"""The time that the script reads."""

DEFAULT_PARTITIONS = {"main": {"flag_default": 1}, "gpu": {"flag_default": 0}}


class SubmitPlugin:
    """The loaded script. `settings` stands for /etc/slurm/cpsched.lua, `off` for the kill switch's file.

    Settings without `begin_delay_s` set it to 0, so that new jobs are held at once.

    Records are dictionaries of strings; text may hold any bytes, as Latin-1 characters.
    """

    def __init__(
        self, settings: str | None = "{ bridge_uid = 2100 }", text: str | None = None, epoch: str | None = None
    ) -> None:
        self.off = False
        self.written: list[tuple[str, str]] = []
        """Files that the script wrote, with their texts."""
        self.writable = True
        self.told: list[str] = []
        self._lua = lua51.LuaRuntime(unpack_returned_tuples=True, encoding="latin-1")
        world = self._lua.globals()
        world.slurm = self._lua.table(
            SUCCESS=0, ERROR=-1, NO_VAL=NO_VAL, log_user=lambda form, *words: self.told.append(form % words)
        )
        present = {"/etc/slurm/cpsched.lua": settings is not None}

        def opened(path: str, mode: str) -> Any:
            if mode == "w":
                if not self.writable:
                    return None
                return self._lua.table(write=lambda _, text: self.written.append((path, text)), close=lambda *_: None)
            assert mode == "r"
            if path.endswith("/epoch"):
                return epoch and self._lua.table(read=lambda *_: epoch, close=lambda *_: None)
            exists = self.off if path.endswith(".off") else present.get(path, False)
            return self._lua.table(close=lambda *_: None) if exists else None

        world.io = self._lua.table(open=opened)
        self.now_s = NOW_S
        world.os.time = lambda: self.now_s

        def read_settings(path: str) -> Any:
            table = self._lua.eval(settings)
            table.begin_delay_s = table.begin_delay_s or 0
            return table

        world.dofile = read_settings
        result = self._lua.execute(text if text is not None else SCRIPT.read_text())
        assert result == 0, "a script that does not return SUCCESS is not loaded by slurmctld"

    def submit(
        self,
        uid: int = ALICE,
        partitions: dict[str, dict[str, int]] | None = None,
        owner: int | None = None,
        **asked: Any,
    ) -> dict[str, Any]:
        """What becomes of a submission by `uid`, for another `owner` with `sbatch --uid`."""
        job = self._lua.table_from({**asked, "user_id": uid if owner is None else owner})
        parts = self._lua.table_from(
            {name: self._lua.table_from(part) for name, part in (partitions or DEFAULT_PARTITIONS).items()}
        )
        assert self._lua.globals().slurm_job_submit(job, parts, uid) == 0
        return {name: value for name, value in dict(job).items() if name != "user_id"}

    def modify(self, uid: int, record: dict[str, Any], **change: Any) -> dict[str, Any] | None:
        """What becomes of a change of a job of alice's; None if it is refused."""
        wanted = self._lua.table_from(change)
        present = {"user_id": ALICE, "restart_cnt": 0, **record}
        result = self._lua.globals().slurm_job_modify(
            wanted, self._lua.table_from(present), self._lua.table_from({}), uid
        )
        return dict(wanted) if result == 0 else None
