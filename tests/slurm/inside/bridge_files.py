"""Read the files, metrics and processes of a bridge."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.round_records import RoundRecord


def query(state: str, file: str, text: str, *values: str) -> list[list[Any]]:
    """Return the rows of a query. Raise `sqlite3.OperationalError` without the file or the table."""
    with closing(sqlite3.connect(f"file:{state}/{file}.sqlite?mode=ro", uri=True, timeout=5)) as database:
        return [list(row) for row in database.execute(text, values)]


def last_round(state: str) -> int:
    """Return the number of the last round in the journal, or 0 before the first round."""
    if not Path(state, "journal.sqlite").exists():
        return 0
    tables = query(state, "journal", "select name from sqlite_master where name = 'rounds'")
    ((number,),) = query(state, "journal", "select max(round) from rounds") if tables else [[None]]
    return number or 0


def _records(state: str) -> list[RoundRecord]:
    journal = Journal(f"{state}/journal.sqlite", read_only=True)
    return [journal.read_round(number) for number in journal.iterate_round_numbers()]


def round_figures(state: str) -> list[dict[str, Any]]:
    """Return each round's seconds by phase, decision path, numbers of queued jobs and starts, and `lookahead`'s limit.

    `work` is None without a limit in seconds.
    """
    return [
        {
            "seconds": dict(record.seconds), "path": record.effort.path, "queued": len(record.queue),
            "starts": len(record.starts), "work": (record.memory or {}).get("work"),
        }
        for record in _records(state)
    ]  # fmt: skip


def dispatchers(state: str) -> list[tuple[str, str]]:
    """Return the dispatcher and the failure of each round with queued jobs."""
    return [(record.policy.dispatcher, record.failure) for record in _records(state) if record.queue]


def cpu_s(*pids: str) -> dict[str, float]:
    """Return the CPU seconds of the bridge and of its pyslurm and dispatcher processes, by name."""
    modules = {"isolation_worker": "dispatcher", "pyslurm_worker": "pyslurm"}
    found = {}
    for pid in pids:
        process = Path("/proc", pid)
        fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        line = (process / "cmdline").read_text()
        name = next((modules[module] for module in modules if module in line), "bridge")
        found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def page(port: int, path: str) -> str:
    """Return what a bridge serves."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
        text: str = response.read().decode()
    return text


def watch_first_forecasts(path: str) -> None:
    """Write to a file the first interval that the API shows for each job, until the process is killed."""
    first: dict[str, list[Any]] = {}
    while True:
        with suppress(OSError):
            for job in json.loads(page(9764, "/api/v1/jobs"))["jobs"]:
                if job["likely_from_s"] is not None and job["label"] not in first:
                    first[job["label"]] = [job["likely_from_s"], job["likely_to_s"], job["calibrated"], time.time()]
            Path(f"{path}.new").write_text(json.dumps(first))
            Path(f"{path}.new").replace(path)
        time.sleep(0.5)
