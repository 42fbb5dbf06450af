"""The status page's JSON, from the models that it is made of."""

from __future__ import annotations

import typing

from pydantic import BaseModel

from cpsched_bridge.watch.page import schema
from cpsched_bridge.watch.web.addresses import ADDRESSES
from docs.scripts.markdown import code, table

_PARTS = (schema.Resource, schema.Cause, schema.Alarm, schema.Asked, schema.Outage, schema.Bar)
"""Models that stand within others."""


def tables() -> str:
    """A heading and a table for each address, then for the values within them."""
    return "\n\n".join([*_addresses(), *(_fields(f"`{part.__name__}`", part) for part in _PARTS)])


def _addresses() -> typing.Iterator[str]:
    for name, kind in ADDRESSES.items():
        several = typing.get_origin(kind) is list
        model = typing.get_args(kind)[0] if several else kind
        yield _fields(f"`/api/{name}`{': a list' if several else ''}", model)


def _fields(title: str, model: type[BaseModel]) -> str:
    sentence = (model.__doc__ or "").strip()
    rows = [
        (code(name), _spelled(field.annotation), field.description or "") for name, field in model.model_fields.items()
    ]
    return f"### {title}\n\n{sentence}\n\n" + table(("field", "type", "meaning"), rows)


def _spelled(annotation: object) -> str:
    names = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}
    if isinstance(annotation, type) and annotation in names:
        return names[annotation]
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return f"list of {_spelled(members[0])}"
    if origin is tuple:
        return "[" + ", ".join(map(_spelled, members)) + "]"
    if origin is dict:
        return "mapping"
    if members:
        return " or ".join(map(_spelled, members))
    return getattr(annotation, "__name__", str(annotation))
