"""Define the registration of everything that is selected by name.

A module lists its registrations only in its tuple `REGISTRATIONS`. This example adds a dispatcher:

class Newest(Dispatcher):
        ...

REGISTRATIONS = (Registration("newest", "Last come, first served.", "folklore", Newest),)
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cpsched.errors import InvalidValue, UnknownName

REQUIRED_PARAMETER = "(must be given)"
"""Default value that marks a required parameter."""


class FileReader(Protocol):
    """A function that reads a file for the core, which opens no files itself."""

    def __call__(self, setting: str, path: str, text: bool = False) -> object:
        """Return the content of the JSON file at `path`, or of a text file if `text`."""


@dataclass(frozen=True, slots=True)
class FileParameter:
    """A mark for a parameter that is set by the path of a JSON or text file.

    The file is text if `text` is true. With `waits_s: Annotated[Mapping[str, float] | None, FileParameter("ewt_file")]
    = None`, the setting is `ewt_file=PATH` and the factory receives the file's content.
    """

    setting: str
    text: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A keyword argument of a factory that `--set NAME=VALUE` can set.

    `name` is the setting, and `keyword` is the factory's argument. They differ only for file parameters.
    """

    name: str
    type: Any
    default: object
    keyword: str = ""
    is_file: bool = False
    is_text: bool = False

    def parse(self, text: str) -> object:
        """Return `text` as a value of this parameter. Raise `InvalidValue` if invalid."""
        kinds = _union_members(self.type)
        if type(None) in kinds and text.lower() in ("none", ""):
            return None
        for kind in kinds:
            if typing.get_origin(kind) is typing.Literal:
                if text in typing.get_args(kind):
                    return text
                raise InvalidValue(self.name, text, f"must be one of {', '.join(map(str, typing.get_args(kind)))}")
            if kind is bool and text.lower() in ("true", "false"):
                return text.lower() == "true"
            if kind in (int, float, str):
                try:
                    return kind(text)
                except ValueError:
                    continue
        names = [kind.__name__ for kind in kinds if kind is not type(None)]
        raise InvalidValue(self.name, text, f"must be {' or '.join(names)}")


@dataclass(frozen=True, slots=True)
class Registration:
    """A named entry in a registry.

    `factory` is a class or a function that returns an instance. `fixed` contains the arguments of `factory` that define
    this variant. `origin` is the plug-in's package, or "" for built-ins.
    """

    name: str
    summary: str
    source: str
    factory: Callable[..., object]
    fixed: Mapping[str, object] = field(default_factory=dict)
    origin: str = ""

    def defaults(self) -> dict[str, Any]:
        """Return the parameters' defaults by name."""
        return {parameter.name: parameter.default for parameter in self.parameters()}

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters that can be given as text, with their defaults."""
        factory = self.factory
        takes = factory.__init__ if inspect.isclass(factory) else factory
        hints = typing.get_type_hints(takes, include_extras=True)
        found = []
        for argument in inspect.signature(factory).parameters.values():
            if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD) or argument.name.startswith("_"):
                continue
            default = self.fixed.get(argument.name, argument.default)
            default = REQUIRED_PARAMETER if default is argument.empty else default
            kind = hints.get(argument.name, _infer_type(default))
            marks = [mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, FileParameter)]
            if marks:
                found.append(Parameter(marks[0].setting, str | None, default, argument.name, True, marks[0].text))
            elif all(_is_text_type(member) for member in _union_members(kind)):
                found.append(Parameter(argument.name, kind, default, argument.name))
        return tuple(found)

    def build(self, settings: Mapping[str, str] | None = None, read: FileReader | None = None) -> Any:
        """Build an instance.

        `settings` are strings, as on the command line. `read` reads the files named in them. Raise `UnknownName` for an
        unknown setting, and `InvalidValue` for an invalid value.
        """
        known = {parameter.name: parameter for parameter in self.parameters()}
        values: dict[str, object] = dict(self.fixed)
        for name, text in (settings or {}).items():
            if name not in known:
                raise UnknownName(f"parameter of {self.name}", name, known)
            parameter = known[name]
            value = parameter.parse(text)
            if parameter.is_file and value is not None:
                if read is None:
                    raise InvalidValue(name, text, "is a file path, but this caller does not accept file parameters")
                value = read(name, text, True) if parameter.is_text else read(name, text)
            values[parameter.keyword] = value
        for name, parameter in known.items():
            if parameter.default is REQUIRED_PARAMETER and parameter.keyword not in values:
                raise InvalidValue(name, "", f"is required by {self.name}")
        return self.factory(**values)


def _union_members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or only the type itself for any other type."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return typing.get_args(kind)
    return (kind,)


def _is_text_type(kind: Any) -> bool:
    """Return whether a value of this type can be given as text."""
    return kind in (int, float, str, bool, type(None)) or typing.get_origin(kind) is typing.Literal


def _infer_type(default: object) -> Any:
    """Infer the type of an argument without annotation from its default."""
    if default is None or default is REQUIRED_PARAMETER:
        return str | None
    return type(default)


def docstring_summary(thing: object) -> str:
    """Return the first paragraph of a docstring on one line, for use as a summary."""
    text = inspect.getdoc(thing) or ""
    first = text.split("\n\n")[0].replace("\n", " ").strip()
    return first or "(no description)"
