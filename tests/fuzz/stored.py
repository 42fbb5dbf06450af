"""The state directory of a killed bridge, and random damage to its files.

Its cluster is a fake one in a file, behind this module as an adapter: `adapter: tests.fuzz.stored`. Whole programs,
including the dead-man script, can therefore use it.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.model import EndedJob
from cpsched_bridge.ports import Hold
from cpsched_bridge.settings import Section
from cpsched_bridge.store.corruption_checks import add_checksum
from cpsched_bridge.store.heartbeat import touch_heartbeat
from cpsched_bridge.store.ledger import LedgerState
from cpsched_bridge.telemetry import forecast_state
from cpsched_bridge.telemetry.forecast_state import LearnedForecastState
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from tests import stores
from tests.bridges import a_bridge, a_report
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.fuzz.mutations import HOSTILE, MUTATIONS

PAGE = 4096
OWN, MARKED = 3, (1, 2, 5, 6)
"""Return the jobs held for the bridge: by its own hold, known only from its files, and by the submit plugin's."""


class Options(Section):
    """The path of the cluster's file."""

    file: Path


def connect(options: Options) -> FakeCluster:
    """Read the cluster from its file."""
    found: FakeCluster = pickle.loads(options.file.read_bytes())
    return found


def held(config: Path) -> list[int]:
    """Return the held jobs of the cluster."""
    cluster: FakeCluster = pickle.loads((config.parent / "cluster").read_bytes())
    return [id for id, fake in cluster.jobs.items() if fake.pending and fake.hold is not Hold.NONE]


def make(folder: Path) -> Path:
    """Write the files of a killed bridge, its cluster and its settings; return the settings file."""
    state = folder / "state"
    state.mkdir(parents=True)
    cluster = FakeCluster(cluster=a_cluster(nodes=2, cores=2), file=folder / "cluster")
    cluster.submit(a_job(9, walltime_s=10_000), a_job(8))
    cluster.run_now(9, ((0, 2),))
    bridge = a_bridge(state, cluster)
    bridge.cycle()
    cluster.end(8)
    cluster.submit(*(a_job(id, per_unit=2) for id in MARKED))
    cluster.submit(a_job(OWN, per_unit=2), hold=Hold.NONE)
    cluster.run_now(MARKED[0], ((1, 1),))
    cluster.requeue(MARKED[0], Hold.PLUGIN)
    cluster.submit(a_job(7, user="somebody else"))
    cluster.run_now(7, ((1, 1),))
    for now_s in range(1, 8):
        cluster.now_s = now_s
        bridge.cycle()
        if now_s == 5:
            stores.all_in_the_file(state / "journal.sqlite")  # part of it in the file, part in the log
    assert cluster.jobs[OWN].hold is Hold.ADMIN
    assert {e.job_id for e in bridge.ledger.list_entries(LedgerState.HELD)} == {OWN, *MARKED}
    forecast_state.write_forecast_state(state / "outlook", a_memory())
    touch_heartbeat(state / "heartbeat")
    (state / "lock").write_text("4711\n")
    copied(state, folder / "killed")
    bridge.close_files()
    shutil.rmtree(state)
    (folder / "killed").rename(state)
    cluster.close()
    config = folder / "bridge.yaml"
    settings = {"mode": "control", "adapter": "tests.fuzz.stored", "state_dir": str(state), "durable": False}
    config.write_text(json.dumps({**settings, "options": {"file": str(folder / "cluster")}}))
    return config


def a_memory() -> Any:
    """Return stored forecasts of some jobs."""
    before = LearnedForecastState()
    jobs = [a_job(id, user="ada", name="run", walltime_s=600) for id in range(60)]
    drawn_s = np.arange(60)[None, :].repeat(5, axis=0) * 600
    found = before.calibration.forecast(0, jobs, drawn_s[0].tolist(), drawn_s, [True] * len(jobs))
    before.issued.store_issued({job.id: interval for job, interval in zip(jobs, found, strict=True)})
    outlook = StartForecaster()
    outlook.restore_memory_when_clock_known(before)
    outlook(a_report(30_000, *(EndedJob(job, 600 * job.id, 600 * job.id + 300) for job in jobs[:40])))
    return outlook.export_memory()


def copied(source: Path, target: Path) -> Path:
    """Copy a folder made by `make`, with corrected paths."""
    shutil.copytree(source, target)
    config = target / "bridge.yaml"
    if config.exists():
        config.write_text(config.read_text().replace(str(source), str(target)))
        cluster = pickle.loads((target / "cluster").read_bytes())
        cluster.file = target / "cluster"
        cluster.claimed = None  # a copied directory is another bridge's; the lease of the killed one has run out
        cluster.close()
    return config


# ------------------------------------------------------------------------------------------------ damages of bytes


def _mutate(mutation: Callable[[bytes, float, bytes], bytes], content: bytearray, chance: random.Random) -> bytes:
    return mutation(bytes(content), chance.random(), chance.choice(HOSTILE))


def _flip_in_use(content: bytearray, chance: random.Random) -> bytes:
    """Flip a bit of a byte that is not zero: most of a small database is empty."""
    used = [at for at, byte in enumerate(content) if byte] or [0]
    content[chance.choice(used)] ^= 1 << chance.randrange(8)
    return bytes(content)


def _truncate(content: bytearray, chance: random.Random) -> bytes:
    return bytes(content[: chance.choice((0, chance.randrange(len(content)), PAGE * chance.randrange(9)))])


def _zero(content: bytearray, chance: random.Random) -> bytes:
    at = chance.randrange(len(content)) // 512 * 512
    length = min(chance.choice((16, 512, PAGE)), len(content) - at)
    content[at : at + length] = bytes(length)
    return bytes(content)


def _scribble(content: bytearray, chance: random.Random) -> bytes:
    at, length = chance.randrange(len(content)), chance.choice((1, 4, 100, PAGE))
    content[at : at + length] = chance.choice((b"\xff" * length, chance.randbytes(length)))
    return bytes(content)


def _swap_pages(content: bytearray, chance: random.Random) -> bytes:
    pages = [bytes(content[at : at + PAGE]) for at in range(0, len(content), PAGE)]
    a, b = chance.randrange(len(pages)), chance.randrange(len(pages))
    pages[a], pages[b] = pages[b], pages[a]
    return b"".join(pages)


def _repeat_page(content: bytearray, chance: random.Random) -> bytes:
    pages = [bytes(content[at : at + PAGE]) for at in range(0, len(content), PAGE)]
    pages[chance.randrange(len(pages))] = chance.choice(pages)
    return b"".join(pages)


def _other(content: bytearray, chance: random.Random) -> bytes:
    return chance.choice((chance.choice(HOSTILE), b"[" * 100_000, chance.randbytes(len(content)), b""))


BYTES: dict[str, Callable[[bytearray, random.Random], bytes]] = {
    **{name: partial(_mutate, MUTATIONS[name]) for name in ("cut out", "flip a bit", "insert")},
    "flip in use": _flip_in_use, "truncate": _truncate, "zero": _zero, "scribble": _scribble,
    "swap pages": _swap_pages, "repeat a page": _repeat_page, "other": _other,
}  # fmt: skip


# ------------------------------------------------------------------------------------ damages of what is in a table

_DEEP = "[" * 100_000
_NUMBERS = (1 << 62, -(1 << 63), (1 << 63) - 1, 1e308, -1e308, float("inf"), 0, -1, 0.5)
_TEXTS = ("nan", "", "x", "9" * 5000, "[[1, 2]]", '{"a": ' * 20_000, _DEEP)
_JSON = (_DEEP.encode(), b"{}", b"[0,{}]", b"[0,1e999]", b"[3,[0],[[9,9]]]")
_VALUES = (
    *(None, b"", b"\xff\xfe", b"\0" * 9, *_NUMBERS, *_TEXTS, *map(add_checksum, _JSON)),
    *(zlib.compress(each) for each in _JSON),
    *(add_checksum(zlib.compress(each)) for each in _JSON),
)
_SCHEMAS = (
    "drop table {t}", "alter table {t} rename to other", "alter table {t} add column more", "delete from {t}",
    "drop table {t}; create table {t} (a, b)", "drop table {t}; create view {t} as select 1", "pragma user_version=7",
    "pragma user_version=-1", "pragma writable_schema=on; update sqlite_master set sql = 'create table x'",
    "pragma writable_schema=on; update sqlite_master set rootpage = 99999",
    "pragma writable_schema=on; update sqlite_master set rootpage = 2",
    "create trigger t after insert on {t} begin select raise(abort, 'no'); end",
)  # fmt: skip


def _in_a_table(path: Path, chance: random.Random) -> str:
    """Change a value of a random row, or the tables themselves; return a description."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        table = chance.choice([name for (name,) in db.execute("select name from sqlite_master where type = 'table'")])
        if chance.random() < 0.3:
            script = chance.choice(_SCHEMAS).format(t=table)
            db.executescript(script)
            return script
        column = chance.choice([row[1] for row in db.execute(f"pragma table_info({table})")])
        value = chance.choice((*_VALUES, "cast(x'68ff' as text)"))
        words = "cast(x'68ff6c64' as text)" if value == "cast(x'68ff' as text)" else "?"
        where = f"{column} = (select {column} from {table} order by random() limit 1)"
        db.execute("pragma ignore_check_constraints=on")
        try:
            db.execute(f"update {table} set {column} = {words} where {where}", (value,) if words == "?" else ())
        except (sqlite3.IntegrityError, OverflowError):
            return "nothing"
        return f"{table}.{column} = {value!r:.40}"
    finally:
        db.close()


def damage(path: Path, chance: random.Random) -> str:
    """Damage a file at random; return a description."""
    if path.suffix == ".sqlite" and chance.random() < 0.3:
        return _in_a_table(path, chance)
    content = bytearray(path.read_bytes() if path.exists() else b"")
    name = chance.choice(sorted(BYTES)) if content else "other"
    if chance.random() < 0.02 and path.exists():
        path.unlink()
        return "deleted"
    path.write_bytes(BYTES[name](content, chance))
    return name
