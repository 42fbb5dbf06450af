"""The page of former names, generated from the tables with which the program still accepts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cpsched.former_names import CLASSES, MODULES
from cpsched_bridge.settings import RENAMED_SETTINGS, RETIRED_SETTINGS
from cpsched_bridge.telemetry.metric_families import FORMER_NAMES, METRICS
from cpsched_sim.command_conventions import FORMER_COMMANDS, FORMER_VERBS, RENAMED_OPTIONS
from docs.scripts.markdown import code, document, table
from docs.scripts.metrics import served_as

INTRODUCTION = """\
Release 0.1.0 renamed settings, commands, metrics, modules and classes. Former names work for two minor releases, with a
warning where one can be printed. Former metrics are served for one release. A name is never reused for another
thing."""


def page() -> str:
    """Return the page with all former names."""
    renamed = [
        (code(old), code(new.new), ", ".join(f"{code(before)}: {code(now)}" for before, now in new.values.items()))
        for old, new in RENAMED_SETTINGS.items()
    ]
    retired = [(code(name), row.removed_in, row.instead) for name, row in RETIRED_SETTINGS.items()]
    commands = {f"cpsched {old}": f"cpsched {new}" for old, new in FORMER_COMMANDS.items()}
    commands |= {f"cpsched {name} FILE": f"cpsched {name} run FILE" for name in FORMER_VERBS}
    commands["cpsched study --example"] = "cpsched study example"
    metrics = {served_as(row, FORMER_NAMES[row.name]): served_as(row) for row in METRICS if row.name in FORMER_NAMES}
    classes = {old: f"{_module(old)}:{new}" for old, new in CLASSES.items()}
    return document(
        "Former names",
        INTRODUCTION,
        "## Settings",
        "`cpsched config` accepts a former name and prints the current one. A former value is also replaced.",
        table(("former", "present", "values, former: present"), renamed),
        "A retired setting is ignored with a warning.",
        table(("retired", "in release", "instead"), retired),
        "## Commands and options",
        _pairs(commands),
        _pairs(RENAMED_OPTIONS),
        "## Metrics",
        _pairs(metrics),
        "## Modules",
        "Plug-ins and settings may name a module or a class as `package.module:Class`.",
        _pairs(MODULES),
        "## Classes",
        _pairs(classes),
    )


def _module(words: str) -> str:
    module = words.partition(":")[0]
    return MODULES.get(module, module)


def _pairs(names: Mapping[str, str]) -> str:
    rows: Iterable[tuple[str, str]] = ((code(old), code(new)) for old, new in names.items())
    return table(("former", "present"), rows)
