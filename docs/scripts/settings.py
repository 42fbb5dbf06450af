"""The settings of the bridge, section by section, from the models that check them."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator

from pydantic.fields import FieldInfo

from cpsched_bridge.settings import Section, Settings
from docs.scripts.markdown import code, table


def tables() -> str:
    """A heading and a table for each section."""
    return "\n\n".join(_sections(Settings, "", "Top level"))


def _sections(model: type[Section], prefix: str, title: str) -> Iterator[str]:
    own, below = [], []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            below.append((name, field.annotation))
        else:
            own.append((code(name), _kind(field), code(_default(field)), field.description))
    sentence = "" if not prefix else f"\n\n{(model.__doc__ or '').strip()}"
    yield f"## {title}{sentence}\n\n" + table(("setting", "value", "default", "meaning"), own)
    for name, section in below:
        yield from _sections(section, f"{prefix}{name}.", code(f"{prefix}{name}:"))


def _kind(field: FieldInfo) -> str:
    limits = ", ".join(
        f"{sign} {getattr(bound, key)}"
        for bound in field.metadata
        for key, sign in (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))
        if getattr(bound, key, None) is not None
    )
    return _spelled(field.annotation) + (f", {limits}" if limits else "")


def _spelled(annotation: object) -> str:
    """A type as an administrator reads it."""
    names = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "null"}
    if isinstance(annotation, type) and annotation in names:
        return names[annotation]
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(code(member) for member in members)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_spelled(member) for member in members)
    if origin is dict:
        return "mapping"
    if origin is tuple:
        return f"list of {_spelled(members[0])}"
    return "path"


def _default(field: FieldInfo) -> object:
    """The default as YAML spells it."""
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return list(value)
    return str(value).lower() if isinstance(value, bool) else value
