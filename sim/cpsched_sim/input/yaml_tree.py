"""Read untrusted files in a small, strict subset of YAML.

The result is plain values with line numbers.

The reader accepts mappings, lists and scalars (text, numbers, true and false, null); dates are text. It rejects tags
(`!!int x`), duplicate keys, control characters, encodings other than UTF-8, and several documents in a file. It also
rejects whole numbers beyond 64 bits, and sizes beyond the limits. Errors state the line and the rule. Each use of an
alias counts, to limit decompression bombs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from cpsched_sim.errors import InputError, InvalidFile
from cpsched_sim.input.file_type_guess import describe_special_file
from cpsched_sim.input.input_limits import MAX_YAML_BYTES, MAX_YAML_DEPTH, MAX_YAML_INTEGER, MAX_YAML_VALUES

M = TypeVar("M", bound=BaseModel)

_MAX_BROKEN_RULES = 6
"""Maximum number of broken rules to list in one message."""
_TYPED_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null")}
_NESTING_EVENTS = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_UNNESTING_EVENTS = (yaml.SequenceEndEvent, yaml.MappingEndEvent)


class StrictFileSection(BaseModel):
    """A part of a file, in which unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class YamlTree:
    """The content of a file as plain values, with the line of each value.

    The content of an empty file is None.
    """

    path: Path
    content: Any
    root: yaml.Node | None = None
    error: type[InvalidFile] = InvalidFile

    def line_of(self, where: Sequence[str | int]) -> int:
        """Return the line of `where`, or of its deepest part that exists.

        `where` is a path of keys and positions from the top.
        """
        line, node = 1, self.root
        for step in where:
            below = _find_child_node(node, step)
            if below is None:
                break
            line, node = below
        return line

    def make_error(self, where: Sequence[str | int], value: object, rule: str) -> InvalidFile:
        """Return an error with the line of `where`."""
        return self.error(self.path, self.line_of(where), ".".join(map(str, where)) or "file", value, rule)

    def to_model(self, model: type[M], at: Sequence[str | int] = (), content: Any = None) -> M:
        """Validate the value at `at`, or `content`, as `model`, and return the model.

        Raise an error at the line of the first broken rule. Its message also lists further broken rules.
        """
        try:
            return model.model_validate(self.content if content is None else content)
        except ValidationError as error:
            first, *others = error.errors()[:_MAX_BROKEN_RULES]
            rule = _broken_rule_text(model, first)
            for each in others:
                where = [*at, *each["loc"]]
                place = f"line {self.line_of(where)}: {'.'.join(map(str, where))}"
                rule += f"; also wrong: {place}: {_broken_value(each)}: {_broken_rule_text(model, each)}"
            raise self.make_error([*at, *first["loc"]], _broken_value(first), rule) from error


def read_yaml_tree(path: Path, error: type[InvalidFile] = InvalidFile) -> YamlTree:
    """Read a YAML file.

    Raise `error` at the line that breaks a rule, or `InputError` if the file is missing.
    """
    if kind := describe_special_file(path):
        raise InputError(f"{path}: must be a file, but is {kind}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_YAML_BYTES + 1)
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}") from problem
    if len(content) > MAX_YAML_BYTES:
        raise error(path, 1, "file", path.name, f"must not be larger than {MAX_YAML_BYTES:,} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise error(path, line, "file", f"byte 0x{content[problem.start]:02x}", "must be UTF-8 text") from problem
    return parse_yaml_tree(path, text, error)


def parse_yaml_tree(path: Path, text: str, error: type[InvalidFile] = InvalidFile) -> YamlTree:
    """Parse YAML text. `path` appears in error messages."""
    try:
        _check_yaml_limits(path, text, error)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        lines = text.rstrip().splitlines() or [""]
        at = min(mark.line if mark else 0, len(lines) - 1)
        shown = lines[at].strip()
        rule = f"must be YAML: {problem.problem}"
        if problem.context_mark and problem.context_mark.line != at:
            rule += f", {problem.context} that began on line {problem.context_mark.line + 1}"
        raise error(path, at + 1, "yaml", shown, rule) from problem
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise error(
            path, line, "yaml", repr(chr(problem.character)), "must not contain control characters"
        ) from problem
    except (ValueError, OverflowError) as problem:  # a version or an escape sequence with a number out of range
        raise error(path, 1, "yaml", path.name, f"must be YAML: {problem}") from problem
    return YamlTree(path, _YamlValueConverter(path, error).of(root) if root is not None else None, root, error)


def _check_yaml_limits(path: Path, text: str, error: type[InvalidFile]) -> None:
    """Check depth, size and tags before any recursive parsing."""
    depth = values = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        depth += isinstance(event, _NESTING_EVENTS) - isinstance(event, _UNNESTING_EVENTS)
        values += isinstance(event, yaml.ScalarEvent)
        if depth > MAX_YAML_DEPTH:
            raise error(path, line, "yaml", "nesting", f"must not be nested deeper than {MAX_YAML_DEPTH}")
        if values > MAX_YAML_VALUES:
            raise error(path, line, "yaml", "values", f"must be at most {MAX_YAML_VALUES:,}")
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise error(path, line, "yaml", tag, "must be removed: tags are not supported")


class _YamlValueConverter:
    """A converter of YAML nodes to plain values. It counts the values."""

    def __init__(self, path: Path, error: type[InvalidFile]) -> None:
        self._path = path
        self._error = error
        self._count = 0
        self._scalars = yaml.constructor.SafeConstructor()

    def of(self, node: yaml.Node, depth: int = 0) -> Any:
        """Return the value of a node and its descendants."""
        self._count += 1
        if self._count > MAX_YAML_VALUES or depth > MAX_YAML_DEPTH:
            rule = f"must not expand to more than {MAX_YAML_VALUES:,} values, or contain themselves"
            raise self._make_error(node, "yaml", "aliases", rule)
        if isinstance(node, yaml.MappingNode):
            return self._convert_mapping(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.of(below, depth + 1) for below in node.value]
        return self._convert_scalar(node)

    def _convert_mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._make_error(key, "yaml", "a list or mapping", "must not be a key")
            if key.value in found:
                raise self._make_error(key, key.value, "given twice", "must occur only once")
            found[self._convert_text(key)] = self.of(value, depth + 1)
        return found

    def _convert_scalar(self, node: yaml.Node) -> Any:
        if node.tag not in _TYPED_TAGS:
            return self._convert_text(node)
        kind = node.tag.rpartition(":")[2]
        build: Callable[[yaml.Node], Any] = getattr(self._scalars, f"construct_yaml_{kind}")
        try:
            value = build(node)
        except (ValueError, OverflowError) as problem:
            raise self._make_error(node, "number", node.value, "must be a number") from problem
        if kind == "int" and abs(value) > MAX_YAML_INTEGER:
            raise self._make_error(node, "number", node.value, "must be within 64 bits")
        return value

    def _convert_text(self, node: yaml.Node) -> str:
        text: str = node.value
        if not all(c.isprintable() or c in "\n\t" or c.isspace() for c in text):
            raise self._make_error(node, "text", text, "must not contain control characters")
        return text

    def _make_error(self, node: yaml.Node, field: str, value: object, rule: str) -> InvalidFile:
        return self._error(self._path, node.start_mark.line + 1, field, value, rule)


def _find_child_node(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    """Return (line, node) of `step` below `node`."""
    if isinstance(node, yaml.MappingNode):
        return next(((k.start_mark.line + 1, v) for k, v in node.value if k.value == str(step)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    return None


_RULE_TEXTS = {
    "bool": "must be true or false",
    "int": "must be a whole number",
    "float": "must be a number",
    "string": "must be text",
    "path": "must be a path",
    "model": "must be a mapping of settings; omit the line for the defaults",
    "dict": "must be a mapping; omit the line for the defaults",
    "list": "must be a list",
    "tuple": "must be a list",
    "missing": "must be given",
    "finite": "must be a finite number",
    "literal": "must be {expected}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
}
"""The text of each kind of broken rule, by the first part of pydantic's name, or the whole name."""


def _broken_rule_text(model: type[BaseModel], broken: Mapping[str, Any]) -> str:
    """Return a broken rule as text: this project's or, for a rare rule, pydantic's."""
    kind = str(broken["type"])
    if kind == "extra_forbidden":
        return f"no such setting{_suggest_setting(model, broken['loc'])}"
    words = (
        _RULE_TEXTS.get(kind)
        or _RULE_TEXTS.get(kind.partition("_")[0])
        or str(broken["msg"]).removeprefix("Value error, ")
    )
    limits = {name: str(value).removesuffix(".0") for name, value in broken.get("ctx", {}).items()}
    return words.format(**limits) if kind in _RULE_TEXTS or kind.partition("_")[0] in _RULE_TEXTS else words


def _broken_value(broken: Mapping[str, Any]) -> object:
    return value_for_message(None if broken["type"] == "missing" else broken["input"])


def value_for_message(value: object) -> object:
    """Return a value for a message, or the name of its kind for a list or mapping."""
    if value is None:
        return "nothing"
    if isinstance(value, str | int | float | bool):
        return value
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _suggest_setting(model: type[BaseModel], where: Sequence[str | int]) -> str:
    """Return a suggestion for an unknown setting, or ""."""
    kind: Any = model
    for step in where[:-1]:
        field = getattr(kind, "model_fields", {}).get(step)
        kind = field.annotation if field is not None else None
    name = str(where[-1])
    close = get_close_matches(name, getattr(kind, "model_fields", ()), 1)
    close = close or [path for path in iterate_setting_names(model) if path.endswith(f".{name}")]
    return f"; did you mean {close[0]!r}?" if close else ""


def iterate_setting_names(model: type[BaseModel]) -> Iterator[str]:
    """Yield the dotted name of every setting of a model and its sections."""
    for name, field in model.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (f"{name}.{below}" for below in iterate_setting_names(field.annotation))
