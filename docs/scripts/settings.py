"""The page of the bridge's settings, section by section, generated from the models that validate the settings file."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from importlib import import_module

from pydantic.fields import FieldInfo

from cpsched_bridge.effective_config import to_yaml
from cpsched_bridge.settings import Section, Settings
from docs.scripts.markdown import code, document, table, unit_of

INTRODUCTION = """\
The settings in the file given by `--config`, by default `/etc/cpsched/bridge.yaml`. Omit a setting to use its
default. `cpsched config` prints each effective value with its source: the file, the adapter, the policy or the default.
An unknown setting is an error."""
BOUNDS = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))
KINDS = {bool: "true or false", int: "integer", float: "number", str: "text", type(None): "null"}


def page() -> str:
    """Return the page: the sections of the file, followed by the options of each adapter."""
    adapters = {name: import_module(f"cpsched_bridge.adapters.{name}").Options for name in ("slurm", "pbs", "mock")}
    options = (part for name, model in adapters.items() for part in _sections(model, "options.", f"`{name}` adapter"))
    return document("Settings", INTRODUCTION, *_sections(Settings, "", "Top level"), *options)


def names(model: type[Section] = Settings, prefix: str = "") -> Iterator[str]:
    """Return the dotted name of every setting and section."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        if _is_section(field):
            yield from names(typing.cast(type[Section], field.annotation), f"{prefix}{name}.")


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, Section)


def _sections(model: type[Section], prefix: str, title: str) -> Iterator[str]:
    own = {name: field for name, field in model.model_fields.items() if not _is_section(field)}
    rows = [
        (code(f"{prefix}{name}"), _values(field), unit_of(name), code(_default(field)), field.description or "")
        for name, field in own.items()
    ]
    yield f"## {title}\n\n{' '.join((model.__doc__ or '').split())}\n\n" + table(
        ("setting", "value", "unit", "default", "meaning"), rows
    )
    for name, field in model.model_fields.items():
        if name not in own:
            section = typing.cast(type[Section], field.annotation)
            yield from _sections(section, f"{prefix}{name}.", code(f"{prefix}{name}"))


def _values(field: FieldInfo) -> str:
    limits = [f"{word} {getattr(each, key)}" for each in field.metadata for key, word in BOUNDS if hasattr(each, key)]
    return ", ".join([_spelled(field.annotation), *limits])


def _spelled(annotation: object) -> str:
    """Return a type as text, with values as they are written in the settings file."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(map(code, members))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_spelled, members))
    if origin is tuple:
        return f"list of {_spelled(members[0])}"
    return "mapping" if origin is dict else KINDS.get(typing.cast(type, annotation), "path")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return to_yaml(list(value) if isinstance(value, tuple) else value) or '""'
