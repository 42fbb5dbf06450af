"""State directories of bridges: recorded with stand-in clusters, stored packed, and read by later code."""

from __future__ import annotations

import io
import json
import lzma
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.corpus.program import Facts, call, text_facts

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "journals"
WORKLOADS = DATA / "workloads"
INTERVAL_S = 60
MOST_WHY = 6
"""Number of jobs of a state directory that are queried with `why`."""
VIEWED = ("mock-advise", "mock-fcfs", "mock-shadow", "pbs-1-easy", "slurm-1-easy")
"""State directories that are queried by more than `why`."""
KEPT_FILES = ("*.sqlite", "heartbeat", "paused")
SEARCHES = re.compile(r"(pcp|hcp|cp)")
"""Dispatchers that call a solver."""
_DIGITS = re.compile(r"\d[\d,]*")


@dataclass(frozen=True)
class Recipe:
    """How to make a state directory: the cluster, the policy, the mode, and the number of cycles."""

    name: str
    site: str
    dispatcher: str
    predictor: str = "walltime"
    mode: str = "control"
    cycles: int = 25
    seed: int = 1
    trace: str = "pool.swf"
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self, state_dir: Path, port: int = 0) -> dict[str, Any]:
        """Return the settings of its bridge."""
        options: dict[str, Any] = {"site": self.site, "seed": self.seed}
        if self.site == "mock":
            options |= {"trace": str(state_dir.parent / "trace" / self.trace)}
            options |= {"system": "pool" if self.trace == "pool.swf" else "eurora"}
        return {
            "mode": self.mode, "adapter": "tests.corpus.standins", "options": options, "state_dir": str(state_dir),
            "durable": False, "on_stop": "keep", "metrics": {"port": port}, "lease": {"duration_s": 900},
            "cycle": {"interval_s": INTERVAL_S, "max_interval_factor": 1, "max_backoff_s": INTERVAL_S},
            "start": {"timeout_s": 150},
            "policy": {
                "dispatcher": self.dispatcher, "predictor": self.predictor, "isolation": "none",
                "dispatcher_settings": effort_of(self.dispatcher), **self.settings,
            },
        }  # fmt: skip


def effort_of(dispatcher: str) -> dict[str, float]:
    """Return settings that make a search end identically on every machine."""
    return {"effort": 1, "limit_s": 600.0} if SEARCHES.match(dispatcher) else {}


def recipes(dispatchers: list[str]) -> list[Recipe]:
    """Return all state directories of the corpus."""
    learned = ["walltime", "last-two", "profile", "quantile"]
    found = [
        Recipe(
            f"mock-{name}", "mock", name, learned[at % 4], cycles=20 if SEARCHES.match(name) else 25,
            trace="nodes.csv" if at % 2 else "pool.swf",
        )
        for at, name in enumerate(dispatchers)
    ]  # fmt: skip
    found += [
        Recipe("mock-advise", "mock", "lookahead", mode="advise"),
        Recipe("mock-shadow", "mock", "lookahead", "quantile", "shadow", trace="nodes.csv"),
    ]
    for at, name in enumerate(("lookahead", "easy", "list-sjf", "prb", "slurm", "lookahead", "fcfs")):
        found.append(Recipe(f"pbs-{at}-{name}", "pbs", name, learned[at % 4], seed=at, cycles=30))
        found.append(Recipe(f"slurm-{at}-{name}", "slurm", name, learned[-at % 4], "shadow", seed=at, cycles=30))
    return found


# ------------------------------------------------------------------------------------------------ recording


def record(recipe: Recipe, folder: Path = FOLDER) -> None:
    """Run the bridge of a recipe and pack its state directory."""
    with tempfile.TemporaryDirectory() as made:
        state = run(recipe, Path(made))
        (folder / f"{recipe.name}.tar.xz").write_bytes(packed(state))


def run(recipe: Recipe, folder: Path, port: int = 0, at_the_end: Any = lambda: None) -> Path:
    """Run the bridge of a recipe to its end; return its state directory."""
    from tests.corpus.standins import virtual_time

    state = folder / "state"
    state.mkdir()
    (folder / "trace").symlink_to(WORKLOADS)
    config = written(recipe.config(state, port), folder)
    with virtual_time(recipe.cycles * INTERVAL_S, at_the_end):
        answer = call("bridge", "--config", str(config))
    if answer.code:
        raise SystemExit(f"{recipe.name}: the bridge ended with {answer.code}:\n{answer.err}{answer.out}")
    return state


def written(config: dict[str, Any], folder: Path) -> Path:
    """Write a settings file."""
    path = folder / "bridge.yaml"
    path.write_text(json.dumps(config))
    return path


def packed(state: Path) -> bytes:
    """Return the files that later code reads as a deterministic compressed archive."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as archive:
        for path in sorted({path for pattern in KEPT_FILES for path in state.glob(pattern)}):
            if path.suffix == ".sqlite":
                with closing(sqlite3.connect(path)) as database:
                    database.execute("pragma wal_checkpoint(truncate)")
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return lzma.compress(found.getvalue(), preset=9)


# ------------------------------------------------------------------------------------------------ reading


@contextmanager
def unpacked(name: str) -> Iterator[Path]:
    """Yield a settings file with the state directory of a recorded bridge."""
    with tempfile.TemporaryDirectory() as made:
        state = Path(made) / "state"
        state.mkdir()
        with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
            archive.extractall(state, filter="data")
        yield written({"adapter": "mock", "state_dir": str(state)}, Path(made))


def names() -> list[str]:
    """Return the recorded state directories."""
    return sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


def replays(name: str) -> tuple[int, str]:
    """Decide each recorded round again; return exit code and output."""
    with unpacked(name) as config:
        answer = call("journal", "replay", "--all", "--config", str(config))
        return answer.code, (answer.out + answer.err).strip()


def facts_of(name: str, asked: list[str]) -> Facts:
    """Return the commands' output on a recorded state directory; `why` for `asked`, or one job of each kind."""
    with unpacked(name) as config:
        folder, given = str(config.parent), ("--config", str(config))
        replayed = call("journal", "replay", "--all", *given)
        lines = (replayed.out.strip() or replayed.err.strip()).splitlines()
        found = {f"journals/{name}/exit": str(replayed.code), f"journals/{name}/replay": lines[-1]}
        found |= {f"journals/{name}/differs/{at}": line for at, line in enumerate(lines[:-1])}
        number = found[f"journals/{name}/replay"].split()[0]
        if name in VIEWED:
            for command in ("journal list --last 5", f"journal show {number}", "status", "unmanaged", "events"):
                answer = call(*command.split(), *given)
                path = f"views/{name}/{command}"
                found |= {f"{path}/exit": str(answer.code)} | text_facts(path, answer.out, folder)
        for job in asked or _jobs(call("journal", "show", number, *given).out, config.parent / "state"):
            answer = call("why", job, *given)
            found |= {f"why/{name}/{job}/exit": str(answer.code)}
            found |= text_facts(f"why/{name}/{job}", answer.out + answer.err, folder)
        return found


def _jobs(shown: str, state: Path) -> list[str]:
    """Return one job for each kind of reason in the last round, each ledger state, and one left job."""
    found = {}
    for line in shown.splitlines():
        columns = re.split(r" {2,}", line.strip())
        if len(columns) > 5 and columns[0][0].isdigit():
            found.setdefault(_DIGITS.sub("#", columns[-1].partition(" (")[0]), columns[0])
    with closing(sqlite3.connect(state / "journal.sqlite")) as journal:
        found.update(journal.execute("select 'unscheduled: ' || reason, label from aside group by reason").fetchall())
    with closing(sqlite3.connect(state / "state.sqlite")) as ledger:
        states = ledger.execute("select state, coalesce(nullif(label, ''), id) from jobs group by state").fetchall()
        found.update((f"ledger: {state}", str(job)) for state, job in states)
    return list(dict.fromkeys(found.values()))[:MOST_WHY]
