"""One thing of the catalogue: its name, one sentence, its source, what builds it, and what may be set.

A module declares what it offers in a tuple `LISTED`; nothing else names it. An example, the whole of a file that adds
a dispatcher:

    class Newest(Dispatcher):
        ...

    LISTED = (Listing("newest", "Last come, first served.", "folklore", Newest),)
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cpsched.errors import InvalidValue, UnknownName

REQUIRED = "(must be given)"
"""Default of a parameter that has none."""


class FileReader(Protocol):
    """Gives the content of a file that a setting names. The core opens no files: programs hand such a function in."""

    def __call__(self, setting: str, path: str, text: bool = False) -> object:
        """What the JSON file at `path` holds; with `text`, what the text file says."""


@dataclass(frozen=True, slots=True)
class FileParameter:
    """Mark of a parameter that is set by the path of a JSON file, or of a `text` file; the setting has this name.

    `waits_s: Annotated[Mapping[str, float] | None, FromFile("ewt_file")] = None` is set by `ewt_file=PATH`, and the
    class is handed the content of the file.
    """

    setting: str
    text: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """One keyword of a factory, and what `--set NAME=VALUE` may give it.

    `name` is the name of the setting, `keyword` that of the factory's argument; they differ for files alone.
    """

    name: str
    type: Any
    default: object
    keyword: str = ""
    is_file: bool = False
    is_text: bool = False

    def parse(self, text: str) -> object:
        """The value that `text` spells; raises `InvalidValue` naming the rule."""
        kinds = _members(self.type)
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
    """A name of the catalogue. `fixed` are the arguments that make this variant of `factory` what it is.

    `factory` is a class, or a function that returns an instance. `origin` names the package of a plug-in and is empty
    for what comes with the project.
    """

    name: str
    summary: str
    source: str
    factory: Callable[..., object]
    fixed: Mapping[str, object] = field(default_factory=dict)
    origin: str = ""

    def defaults(self) -> dict[str, Any]:
        """What each parameter is where nobody sets it, by name."""
        return {parameter.name: parameter.default for parameter in self.parameters()}

    def parameters(self) -> tuple[Parameter, ...]:
        """What may be set, with defaults. Arguments that no text can spell are left out."""
        factory = self.factory
        takes = factory.__init__ if inspect.isclass(factory) else factory
        hints = typing.get_type_hints(takes, include_extras=True)
        found = []
        for argument in inspect.signature(factory).parameters.values():
            if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD) or argument.name.startswith("_"):
                continue
            default = self.fixed.get(argument.name, argument.default)
            default = REQUIRED if default is argument.empty else default
            kind = hints.get(argument.name, _type_of(default))
            marks = [mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, FileParameter)]
            if marks:
                found.append(Parameter(marks[0].setting, str | None, default, argument.name, True, marks[0].text))
            elif all(_is_spelled(member) for member in _members(kind)):
                found.append(Parameter(argument.name, kind, default, argument.name))
        return tuple(found)

    def build(self, settings: Mapping[str, str] | None = None, read: FileReader | None = None) -> Any:
        """An instance. `settings` are texts, as the command line gives them; `read` opens the files they name.

        Raises `UnknownName` for a setting that is not a parameter, `InvalidValue` for a text that is no value of it.
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
                    raise InvalidValue(name, text, "names a file, and nobody here reads files")
                value = read(name, text, True) if parameter.is_text else read(name, text)
            values[parameter.keyword] = value
        for name, parameter in known.items():
            if parameter.default is REQUIRED and parameter.keyword not in values:
                raise InvalidValue(name, "", f"must be given to {self.name}")
        return self.factory(**values)


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union; of any other type, itself."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return typing.get_args(kind)
    return (kind,)


def _is_spelled(kind: Any) -> bool:
    """Whether a text can be a value of this type."""
    return kind in (int, float, str, bool, type(None)) or typing.get_origin(kind) is typing.Literal


def _type_of(default: object) -> Any:
    """The type of an argument that is not annotated, as its default tells it."""
    if default is None or default is REQUIRED:
        return str | None
    return type(default)


def first_sentence(thing: object) -> str:
    """The first sentence of its docstring, for things that have not written one for the catalogue."""
    text = inspect.getdoc(thing) or ""
    first = text.split("\n\n")[0].replace("\n", " ").strip()
    return first or "(no description)"
