"""All facts that must not change, by area."""

from __future__ import annotations

import csv
import gzip
import inspect
import json
import re
import socket
import sqlite3
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Collection
from contextlib import closing
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from tests.corpus import journals
from tests.corpus.journals import WORKLOADS, Recipe, effort_of
from tests.corpus.program import Facts, call, json_facts, leaves, main_of_program, text_facts
from tests.installed import install

POOL, NODES = WORKLOADS / "pool.swf", WORKLOADS / "nodes.csv"
JOBS_OF_SEARCHES = "40"
"""Number of jobs of a replay whose dispatcher calls a solver."""
LIVE = Recipe("live", "mock", "lookahead", "quantile", cycles=25, trace="nodes.csv")
ADDRESSES = (
    "v1/jobs/{waiting}", "v1/jobs/{running}", "v1/jobs/{ended}", "v1/jobs/nonsense", "v1/when?time=60", "v1/windows",
    "v1/when?time=60&nodes=2&exclusive=1", "v1/when?time=nonsense", "v1/nonsense", "v1/openapi.json",
)  # fmt: skip
"""Paths below /api. In braces: the first waiting, running or ended job."""
WRONG_SETTINGS = {
    "unknown key": {"nonsense": 1},
    "unknown adapter": {"adapter": "nonsense"},
    "wrong type": {"cycle": {"interval_s": "soon"}},
    "unknown dispatcher": {"policy": {"dispatcher": "nonsense"}},
    "unknown option": {"options": {"nonsense": 1}},
    "unknown mode": {"mode": "nonsense"},
}
GROUPS = ("dispatchers", "predictors", "metrics", "formats", "adapters")


def areas(recorded: Callable[[str], Collection[str]]) -> dict[str, Callable[[], Facts]]:
    """Return, by area, the function that collects its facts; `recorded` returns the recorded paths of an area."""
    return {
        "commands": lambda: commands(recorded("commands")),
        "settings": settings,
        "metrics": metrics,
        "python": python,
        "plugins": plugins,
        "exits": exits,
        "json": json_outputs,
        "schedules": schedules,
        "live": live,
        "journals": lambda: recorded_journals(recorded("journals")),
    }


def named(kind: str) -> list[str]:
    """Return the registered dispatchers or predictors."""
    return [each["name"] for each in json.loads(call(kind, "--json").out)[kind]]


# ------------------------------------------------------------------------------------------------ the command line


def commands(recorded: Collection[str]) -> Facts:
    """Return all commands with their options, and that each has a --help."""
    module = sys.modules[main_of_program().__module__]
    apps = [value for value in vars(module).values() if isinstance(value, typer.Typer)]
    app = max(apps, key=lambda each: len(each.registered_commands) + len(each.registered_groups))
    facts: Facts = {}
    _command((), typer.main.get_command(app), facts)
    asked = {path.split("/")[1] for path in (*facts, *recorded)}
    return facts | {f"commands/{name}/help-exit": str(call(*name.split(), "--help").code) for name in sorted(asked)}


def _command(path: tuple[str, ...], command: Any, facts: Facts) -> None:
    for name, each in getattr(command, "commands", {}).items():
        _command((*path, name), each, facts)
    if not path:
        return
    start = f"commands/{' '.join(path)}"
    facts[start] = "hidden" if command.hidden else "shown"
    for at, option in enumerate(command.params):
        is_option = option.param_type_name == "option"
        names = "|".join((*option.opts, *option.secondary_opts)) if is_option else f"argument {at + 1}"
        default = option.default if isinstance(option.default, str | int | float | bool | Path) else None
        said = {
            "flag": getattr(option, "is_flag", False), "required": option.required,
            "repeated": getattr(option, "multiple", False) or option.nargs == -1,
            "env": option.envvar, "hidden": getattr(option, "hidden", False),
            "choices": "|".join(_choices(option)),
        }  # fmt: skip
        words = [name if value is True else f"{name}={value}" for name, value in said.items() if value]
        facts[f"{start}/{names}"] = " ".join([*words, f"default={default}"])


def _choices(option: Any) -> list[str]:
    """Return the choices of an option, for this release of Typer and those based on Click."""
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    return [*map(str, get_args(kind) if get_origin(kind) is Literal else getattr(kind, "choices", ()))] or [
        *map(str, getattr(getattr(option, "type", None), "choices", None) or ())
    ]


def exits() -> Facts:
    """Return exit codes, and whether stdout and stderr have output."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        config = {name: folder / f"{at}.yaml" for at, name in enumerate(("good", "unused", "broken", *WRONG_SETTINGS))}
        (folder / "used").mkdir()
        good = {"adapter": "mock", "state_dir": str(folder / "used")}
        config["good"].write_text(json.dumps(good))
        (folder / "used" / "heartbeat").write_text("")
        config["unused"].write_text(json.dumps({**good, "state_dir": str(folder / "nowhere")}))
        config["broken"].write_text("mode: [")
        for name, wrong in WRONG_SETTINGS.items():
            config[name].write_text(json.dumps({**good, **wrong}))
        (folder / "bad.swf").write_text("1 2 nonsense\n")
        asked: dict[str, tuple[str, ...]] = {
            "no arguments": (), "version": ("--version",), "unknown command": ("nonsense",),
            "unknown option": ("status", "--nonsense"), "missing argument": ("simulate",),
            "simulate/missing file": ("simulate", str(folder / "none.swf")),
            "simulate/bad file": ("simulate", str(folder / "bad.swf")),
            "simulate/bad file --json": ("simulate", str(folder / "bad.swf"), "--json"),
            "simulate/unknown dispatcher": ("simulate", str(POOL), "--dispatcher", "nonsense"),
            "simulate/unknown setting": ("simulate", str(POOL), "--set", "nonsense=1"),
            "simulate/unknown system": ("simulate", str(POOL), "--system", "nonsense"),
            "deploy-files": ("deploy-files", str(folder / "deployed")),
            "doctor": ("doctor", "--config", str(config["good"])),
            "pause": ("pause", "--config", str(config["good"])),
            "resume": ("resume", "--config", str(config["good"])),
            "take-leadership": ("take-leadership", "--config", str(config["good"])),
            "release-all": ("release-all", "--config", str(config["good"])),
            "estimate-start/no bridge": ("estimate-start", "--time", "60", "--config", str(config["good"])),
            **{f"config/{name}": ("config", "--config", str(path)) for name, path in config.items()},
            **{
                f"{command}/{name}": (*command.split(), "--config", str(config[name]))
                for command in ("status", "why 1", "events", "journal list", "unmanaged", "release-all")
                for name in ("unused", "broken")
            },
        }  # fmt: skip
        facts = {}
        for name, argv in asked.items():
            answer = call(*argv)
            said = "".join(f" {what}" for what, text in (("stdout", answer.out), ("stderr", answer.err)) if text)
            facts[f"exits/{name}"] = f"{answer.code}{said}"
        found = sorted(path for path in (folder / "deployed").rglob("*") if path.is_file())
        return facts | {f"exits/deploy-files/{path.relative_to(folder / 'deployed')}": "file" for path in found}


def settings() -> Facts:
    """Return every setting with its default, for each adapter."""
    facts: Facts = {}
    for adapter in ("mock", "slurm", "pbs"):
        with tempfile.TemporaryDirectory() as made:
            config = journals.written({"adapter": adapter, "state_dir": "/var/lib/corpus"}, Path(made))
            facts |= json_facts(f"settings/{adapter}", call("config", "--json", "--config", str(config)))
    return facts


def metrics() -> Facts:
    """Return every metric with its type and labels."""
    from tests.corpus.standins import metric_families

    return {f"metrics/{name}": " ".join([kind, *labels]) for name, kind, labels in metric_families()}


def python() -> Facts:
    """Return the public names of the packages, and the signatures of their functions."""
    facts: Facts = {}
    for package in ("cpsched", "cpsched_sim"):
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            facts[f"python/{package}/{name}"] = type(value).__name__ if not callable(value) else "callable"
            if inspect.isfunction(value) or hasattr(value, "__dataclass_fields__"):
                for at, argument in enumerate(inspect.signature(value).parameters.values()):
                    needed = "required" if argument.default is argument.empty else "optional"
                    facts[f"python/{package}/{name}/{argument.name}"] = f"{needed} {at + 1} {argument.kind.description}"
    return facts


def plugins() -> Facts:
    """Check that installed packages are found under the entry-point groups."""
    with tempfile.TemporaryDirectory() as made:
        points = {f"cpsched.{group}": {f"corpus-{group}": "corpus_of_nothing:Nothing"} for group in GROUPS}
        install(Path(made), "corpus", {}, points)
        config = journals.written({"adapter": "corpus-adapters", "state_dir": made}, Path(made))
        asked = {
            "dispatchers": ("simulate", str(POOL), "--dispatcher", "corpus-dispatchers"),
            "predictors": ("simulate", str(POOL), "--predictor", "corpus-predictors"),
            "metrics": ("simulate", str(POOL), "--metric", "corpus-metrics"),
            "formats": ("simulate", str(POOL), "--format", "corpus-formats"),
            "adapters": ("config", "--config", str(config)),
        }
        sys.path.insert(0, made)
        try:
            return {
                f"plugins/cpsched.{group}": "found" if "corpus_of_nothing" in call(*argv).err else "not found"
                for group, argv in asked.items()
            }
        finally:
            sys.path.remove(made)


# ------------------------------------------------------------------------------------------------ figures


def json_outputs() -> Facts:
    """Return the `--json` output of every command that has it, except those that query a bridge."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        study = folder / "study.yaml"
        study.write_text(STUDY.format(trace=POOL))
        rounds, pool, nodes = str(folder / "rounds.jsonl"), str(POOL), (str(NODES), "--system", "eurora")
        waited = str(_with_waits(folder))
        call("instances", "record", pool, "--out", rounds, "--dispatcher", "easy", "--contended", "--most", "3")
        asked = {
            "dispatchers": ("dispatchers",), "predictors": ("predictors",), "metrics": ("metrics",),
            "simulate": ("simulate", pool), "simulate error": ("simulate", pool, "--dispatcher", "nonsense"),
            "simulate nodes": ("simulate", *nodes, "--dispatcher", "lookahead", "--max-jobs", "60"),
            "compare": ("compare", pool, "--dispatcher", "easy,list-sjf", "--predictor", "walltime,last-two",
                        "--processes", "1", "--out", str(folder / "compare")),
            "accuracy": ("accuracy", pool), "accuracy intervals": ("accuracy", *nodes, "--intervals"),
            "start times": ("accuracy", "start-times", pool),
            "start times nodes": ("accuracy", "start-times", *nodes, "-d", "lookahead", "--effort", "50",
                                  "--max-jobs", "60"),
            "simulate out": ("simulate", pool, "--out", str(folder / "simulate")),
            "study": ("study", "run", str(study), "--out", str(folder / "study"), "--processes", "1"),
            "study dry": ("study", "run", str(study), "--out", str(folder / "dry"), "--dry-run"),
            "benchmark dry": ("benchmark", "--out", str(folder / "benchmark"), "--quick", "--dry-run"),
            "instances solve": ("instances", "solve", rounds, "--dispatcher", "easy", "--dispatcher", "greedy"),
            "whatif": ("whatif", "run", waited, "--out", str(folder / "whatif"), "--with", "easy", "--seeds", "1",
                       "--processes", "1", "--no-sessions", "--anyway"),
            "tune": ("tune", *nodes, "--processes", "1", "--seeds", "1", "--keep", str(folder / "kept")),
        }  # fmt: skip
        facts: Facts = {}
        for name, argv in asked.items():
            found = json_facts(f"json/{name}", call(*argv, "--json"))
            facts |= {path: value.replace(made, "DIR").replace(str(WORKLOADS), "DATA") for path, value in found.items()}
        for name in ("simulate", "compare", "study", "whatif"):
            facts |= _written(folder / name, f"json/files/{name}")
        return facts


def _written(folder: Path, path: str) -> Facts:
    """Return the files of a results folder with their columns or keys."""
    facts: Facts = {}
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        first = content.decode(errors="replace").partition("\n")[0]
        kind, said = "".join(file.suffixes), "file"
        if ".csv" in kind and "json" not in kind:
            said = first
        elif kind.endswith((".json", ".jsonl")):
            found = json.loads(first if kind.endswith("l") else content)
            said = " ".join(sorted(found)) if isinstance(found, dict) else type(found).__name__
        facts[re.sub(r"[0-9a-f]{16,}", "KEY", f"{path}/{file.relative_to(folder)}")] = said  # keys are of the code
    return facts


def _with_waits(folder: Path) -> Path:
    """Write the workload on a pool with the waits of a replay, like the trace of a real machine."""
    call("simulate", str(POOL), "--out", str(folder))
    rows = csv.DictReader(gzip.decompress((folder / "schedule.csv.gz").read_bytes()).decode().splitlines())
    wait = {row["job"]: int(row["start_s"]) - int(row["submit_s"]) for row in rows}
    lines = POOL.read_text().splitlines()
    jobs = ([line] if line.startswith(";") else line.split(" ") for line in lines)
    changed = (job if len(job) == 1 else [*job[:2], str(wait[job[0]]), *job[3:]] for job in jobs)
    path = folder / "waited.swf"
    path.write_text("".join(f"{' '.join(words)}\n" for words in changed))
    return path


STUDY = """\
title: corpus
traces: {{pool: {{file: {trace}}}}}
grids: [{{traces: [pool], dispatchers: [easy, list-sjf], predictors: [walltime, oracle], seeds: [0]}}]
report: {{baseline: easy / walltime, metrics: [mean_wait_s, bsld]}}
"""


def schedules() -> Facts:
    """Return figures and hashed schedules of replays on a pool and on nodes, for all dispatchers and predictors."""
    facts: Facts = {}
    for dispatcher in named("dispatchers"):
        facts |= _replayed(dispatcher, "walltime")
    for predictor in named("predictors"):
        facts |= _replayed("easy", predictor) | _replayed("lookahead", predictor)
    return facts


def _replayed(dispatcher: str, predictor: str) -> Facts:
    facts: Facts = {}
    searches = effort_of(dispatcher)
    limits = [f"--set={name}={value}" for name, value in searches.items()]
    most = ["--max-jobs", JOBS_OF_SEARCHES] if searches else ["--max-jobs", "200"]
    for trace, system in ((POOL, "pool"), (NODES, "eurora")):
        path = f"schedules/{dispatcher}/{predictor}/{trace.stem}"
        with tempfile.TemporaryDirectory() as out:
            policy = ("--dispatcher", dispatcher, "--predictor", predictor)
            answer = call("simulate", str(trace), "--system", system, *policy, *limits, *most, "--json", "--out", out)
            facts |= json_facts(path, answer)
            schedule = Path(out) / "schedule.csv.gz"
            if schedule.exists():
                text = gzip.decompress(schedule.read_bytes()).decode()
                rows = list(csv.DictReader(text.splitlines()))
                facts[f"{path}/columns"] = ",".join(rows[0])
                facts[f"{path}/starts"] = _hash([row["start_s"] for row in rows])
                facts[f"{path}/placements"] = _hash([row["nodes"] for row in rows])
    return facts


def _hash(values: list[str]) -> str:
    return sha256("\n".join(values).encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------ bridges


def live() -> Facts:
    """Return the HTTP API, the answers and the files of a bridge on a simulated site."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    facts: Facts = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)

        def ask() -> None:
            base = f"http://127.0.0.1:{port}"
            jobs = _some_jobs(base)
            for address in ADDRESSES:
                facts.update(_http(f"live/api/{address}", f"{base}/api/{address.format(**jobs)}"))
            for address in ("metrics", "healthz", "readyz", "", "jobs", "nodes", "wall", "when"):
                facts[f"live/http/{address}"] = str(_fetched(f"{base}/{address}")[0])
            given = ("--json", "--config", str(folder / "bridge.yaml"))
            facts.update(json_facts("live/when", call("estimate-start", "--time", "60", *given)))
            facts.update(json_facts("live/windows", call("backfill-windows", *given)))

        state = journals.run(LIVE, folder, port, ask)
        for path in state.iterdir():
            facts[f"live/files/{path.name}"] = "file"
            if path.suffix == ".sqlite":
                facts |= _schema(path)
    return {path: value.replace(made, "DIR").replace(str(port), "PORT") for path, value in facts.items()}


def _some_jobs(base: str) -> dict[str, str]:
    """Return the first waiting, running and ended job."""
    found: dict[str, str] = {}
    for id in range(1, 1000):
        state = json.loads(_fetched(f"{base}/api/v1/jobs/{id}")[1])["state"]
        found.setdefault(state if state in ("waiting", "running") else "ended", str(id))
    return found


def _fetched(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _http(path: str, url: str) -> Facts:
    status, content = _fetched(url)
    facts = {f"{path}/exit": str(status)}
    try:
        return facts | dict(leaves(path, json.loads(content)))
    except ValueError:
        return facts | text_facts(path, content.decode())


def _schema(path: Path) -> Facts:
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute("select name, sql from sqlite_master where sql is not null").fetchall()
        version = database.execute("pragma user_version").fetchone()[0]
    facts = {f"live/files/{path.name}/{name}": re.sub(r"\s+", " ", sql) for name, sql in tables}
    return facts | {f"live/files/{path.name}/format": str(version)}


def recorded_journals(recorded: Collection[str]) -> Facts:
    """Return the commands' output on the recorded state directories, and each round decided again."""
    facts: Facts = {}
    for name in journals.names():
        start = f"why/{name}/"
        asked = dict.fromkeys(path.removeprefix(start).split("/")[0] for path in recorded if path.startswith(start))
        facts |= journals.facts_of(name, list(asked))
    return facts
