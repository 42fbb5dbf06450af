"""Rename the entries of `tools/names.yaml`, one layer at a time: `python tools/rename.py LAYER`, then one commit.

Names are resolved through scopes and imports, members through the types that mypy infers. Where mypy does not know the
type of an object, a member is renamed only if no other class of the tree has one of that name; the rest is printed.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import hashlib
import io
import json
import pickle
import re
import subprocess
import sys
import textwrap
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("names.yaml")
ROOTS = {"cpsched": "cpsched", "cpsched_sim": "sim/cpsched_sim", "cpsched_bridge": "bridge/cpsched_bridge"}
TESTS = {"cpsched": "tests/unit/cpsched", "cpsched_sim": "tests/unit/sim", "cpsched_bridge": "tests/unit/bridge"}
UNTOUCHED = re.compile(
    r"^(CHANGELOG\.md|cpsched/former_names\.py|tools/|docs/releases/|docs/pictures/|tests/corpus/data/|tests/golden/|studies/)"
)
TEXTS = {".md", ".toml", ".yaml", ".yml", ".cfg", ".ini", ".txt", ".sh", ".service", ".lua", ".json", ".spec", ""}
MEMBERS = {"method", "field"}
LISTS = {"__all__", "_HOMES", "_HOME_OF", "__slots__"}
BY_NAME = {"setattr", "delattr", "getattr", "hasattr", "object", "spy"}
WIDTH = 120
FOREIGN = {name for kind in (str, int, list, dict, set, tuple, bytes, Path, subprocess.Popen) for name in dir(kind)}
DOTTED = re.compile(r"\b(cpsched(?:_sim|_bridge)?|tests)((?:\.[A-Za-z_]\w*)+)(:[A-Za-z_]\w*)?")
SPAN = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)((?:\(\))?)`(?!`)")


@dataclass
class Entry:
    kind: str
    old: str
    new: str
    strings: bool = False
    uses: int = 0

    @property
    def owner(self) -> str:
        return self.old.rpartition(".")[0]

    @property
    def name(self) -> str:
        return self.old.rpartition(".")[2]


@dataclass
class Scope:
    node: ast.AST
    bound: dict[str, str | None] = field(default_factory=dict)
    """By name, the full name imported under it; None for a local value."""
    is_class: bool = False


def run(*command: str, check: bool = True) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout


def tracked() -> list[str]:
    return [path for path in run("git", "ls-files", "-z").split("\0") if path and Path(path).is_file()]


def module_of(path: str) -> str | None:
    """Return the module in a file, or None for a script."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if parts[0] in {"sim", "bridge"} and len(parts) > 1:
        parts = parts[1:]
    return ".".join(parts) if all(part.isidentifier() for part in parts) else None


def file_of(module: str) -> str:
    """Return the path of a module without its suffix."""
    head, *rest = module.split(".")
    return "/".join((ROOTS.get(head, head), *rest))


def target_of(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Return the full name of the module that names are imported from."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    base = parts[: len(parts) - node.level + is_package]
    return ".".join((*base, *filter(None, [node.module])))


def bound_in(node: ast.AST, module: str, is_package: bool) -> dict[str, str | None]:
    """Return the names that a scope binds, without those of nested scopes."""
    found: dict[str, str | None] = {}
    outside: set[str] = set()

    def visit(each: ast.AST, top: bool = False) -> None:
        if isinstance(each, ast.AnnAssign) and each.value is None and isinstance(node, ast.ClassDef):
            return  # a field may have the name of its type's module
        if isinstance(each, ast.Import):
            for name in each.names:
                found[name.asname or name.name.split(".")[0]] = name.name if name.asname else name.name.split(".")[0]
        elif isinstance(each, ast.ImportFrom):
            base = target_of(each, module, is_package)
            for name in each.names:
                found[name.asname or name.name] = f"{base}.{name.name}"
        elif isinstance(each, ast.Global | ast.Nonlocal):
            outside.update(each.names)
        elif isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            found.setdefault(each.id, None)
        elif isinstance(each, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and each.name:
            found.setdefault(each.name, None)
        if not top and isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(each.name, None)
            for part in each.decorator_list:
                visit(part)
            return
        if not top and isinstance(each, ast.Lambda):
            return
        if isinstance(each, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) and not top:
            for inner in ast.walk(each):  # a walrus binds outside of its comprehension
                if isinstance(inner, ast.NamedExpr):
                    found.setdefault(inner.target.id, None)
            return
        for child in ast.iter_child_nodes(each):
            visit(child)

    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        every = node.args
        for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg):
            if argument:
                found[argument.arg] = None
        for part in node.body if isinstance(node.body, list) else [node.body]:
            visit(part)
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for part in node.generators:
            visit(part.target)
    elif isinstance(node, ast.ClassDef | ast.Module):
        for statement in node.body:
            visit(statement)
    return {name: value for name, value in found.items() if name not in outside}


@dataclass
class Source:
    path: str
    text: str
    tree: ast.Module
    module: str
    is_package: bool
    names: dict[str, str | None]
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)


class Project:
    """The tree: its modules, what they define, and what each name stands for."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        self.by_module: dict[str, Source] = {}
        for path in tracked():
            if path.endswith(".py") and not path.startswith("tools/"):
                self.add(path, Path(path).read_text())
        self.modules = set(self.by_module)
        self.ancestors: dict[str, set[str]] = {}
        self.members: dict[str, set[str]] = defaultdict(set)
        """By name of a member, the full names of the classes that have it."""
        for source in self.by_module.values():
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ClassDef):
                    name = f"{source.module}.{node.name}"
                    source.classes[node.name] = node
                    for member in members_of(node):
                        self.members[member].add(name)

    def add(self, path: str, text: str) -> Source:
        module = module_of(path) or path
        is_package = path.endswith("__init__.py")
        tree = ast.parse(text)
        source = Source(path, text, tree, module, is_package, bound_in(tree, module, is_package))
        self.sources[path] = self.by_module[module] = source
        return source

    def resolve(self, name: str, seen: frozenset[str] = frozenset()) -> str:
        """Resolve a dotted name through imports and re-exporting packages."""
        if name in self.modules or name in seen:
            return name
        base, _, last = name.rpartition(".")
        if not base:
            return name
        base = self.resolve(base, seen | {name})
        if base in self.modules:
            if f"{base}.{last}" in self.modules:
                return f"{base}.{last}"
            imported = self.by_module[base].names.get(last)
            if imported is not None and imported != f"{base}.{last}":
                return self.resolve(imported, seen | {name})
        return f"{base}.{last}"

    def has(self, name: str) -> bool:
        """Return whether a full name is defined."""
        if name in self.modules:
            return True
        base, _, last = name.rpartition(".")
        if base in self.modules:
            return last in self.by_module[base].names
        return base in self.members.get(last, ())

    def family(self, name: str) -> set[str]:
        """Return a class and all its base classes."""
        if name not in self.ancestors:
            self.ancestors[name] = {name}
            module, _, last = name.rpartition(".")
            source = self.by_module.get(module)
            if source and last in source.classes:
                for base in source.classes[last].bases:
                    if dotted := dotted_of(base):
                        head, _, rest = dotted.partition(".")
                        start = source.names.get(head) or f"{module}.{head}"
                        self.ancestors[name] |= self.family(self.resolve(".".join(filter(None, (start, rest)))))
        return self.ancestors[name]


def dotted_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Subscript):
        return dotted_of(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted_of(node.value)):
        return f"{base}.{node.attr}"
    return None


def members_of(node: ast.ClassDef) -> set[str]:
    """Return the names of the methods and fields of a class."""
    found = set()
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(each.name)
            for part in ast.walk(each):
                if (
                    isinstance(part, ast.Attribute)
                    and isinstance(part.ctx, ast.Store)
                    and dotted_of(part.value) == "self"
                ):
                    found.add(part.attr)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.add(each.target.id)
        elif isinstance(each, ast.Assign):
            found.update(target.id for target in each.targets if isinstance(target, ast.Name))
    return found


def cached_types(project: Project, wanted: re.Pattern[str]) -> dict[tuple[str, int, int, int, int], list[str] | None]:
    """Return the result of `types_of` for files with this content, which takes a minute; it is cached."""
    found = {path: source.text for path, source in project.sources.items() if module_of(path)}
    sources = {path: text for path, text in found.items() if wanted.search(text)}
    key = hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()
    kept = Path(".mypy_cache") / f"rename-{key}.pickle"
    if not kept.exists():
        found = types_of(list(sources))
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(pickle.dumps(found))
    return pickle.loads(kept.read_bytes())


def nodes_below(top: Any) -> Iterator[Any]:
    """Yield all nodes of a mypy tree; mypy's visitors are compiled and cannot be subclassed."""
    from mypy import nodes, patterns

    elsewhere = {"node", "info", "names", "type", "original_def", "unanalyzed_type", "analyzed", "impl", "definition"}
    parts_of: dict[type, list[str]] = {}
    stack, seen = [top], set()
    while stack:
        node = stack.pop()
        if isinstance(node, list | tuple):
            stack.extend(node)
            continue
        if not isinstance(node, nodes.Node | patterns.Pattern) or id(node) in seen:
            continue
        if isinstance(node, nodes.TypeInfo | nodes.Var) or (isinstance(node, nodes.MypyFile) and node is not top):
            continue
        seen.add(id(node))
        yield node
        kind = type(node)
        if kind not in parts_of:
            parts_of[kind] = [
                name
                for name in dir(kind)
                if not name.startswith("_") and name not in elsewhere and not callable(getattr(kind, name, None))
            ]
        for name in parts_of[kind]:
            part = getattr(node, name, None)
            if isinstance(part, list | tuple | nodes.Node | patterns.Pattern):
                stack.append(part)


def types_of(paths: list[str]) -> dict[tuple[str, int, int, int, int], list[str] | None]:
    """By location of an expression, the full names of its possible classes; None if mypy does not know."""
    from mypy import build, nodes, types
    from mypy.config_parser import parse_config_file
    from mypy.find_sources import create_source_list
    from mypy.options import Options

    options = Options()
    parse_config_file(options, lambda: None, "pyproject.toml", io.StringIO(), io.StringIO())
    options.packages = []
    options.export_types = options.preserve_asts = options.check_untyped_defs = True
    options.explicit_package_bases = options.namespace_packages = options.ignore_missing_imports = True
    options.incremental = False
    options.cache_dir = "/dev/null"
    options.mypy_path = [".", "sim", "bridge"]
    result = build.build(create_source_list(paths, options), options)

    def classes(kind: types.Type | None) -> list[str] | None:
        kind = types.get_proper_type(kind) if kind is not None else None
        if isinstance(kind, types.Instance):
            return [each.fullname for each in kind.type.mro]
        if isinstance(kind, types.TypeType):
            return classes(kind.item)
        if isinstance(kind, types.FunctionLike):
            return [each.fullname for each in kind.type_object().mro] if kind.is_type_obj() else []
        if isinstance(kind, types.UnionType):
            parts = [
                classes(each) for each in kind.items if not isinstance(types.get_proper_type(each), types.NoneType)
            ]
            return None if any(part is None for part in parts) else [name for part in parts for name in part or ()]
        if isinstance(kind, types.TupleType):
            return [each.fullname for each in kind.partial_fallback.type.mro]
        if isinstance(kind, types.TypeVarType):
            return classes(kind.upper_bound)
        if isinstance(kind, types.LiteralType):
            return classes(kind.fallback)
        return None

    found: dict[tuple[str, int, int, int, int], list[str] | None] = {}
    wanted = set(paths)
    for file in result.files.values():
        if (path := str(Path(file.path))) in wanted:
            for node in nodes_below(file):
                if isinstance(node, nodes.MemberExpr):
                    parts = [node.expr]
                elif isinstance(node, nodes.CallExpr):
                    parts = [node.callee, *node.args[:1]]
                else:
                    continue
                for part in parts:
                    if part in result.types:
                        place = (path, part.line, part.column, part.end_line or 0, part.end_column or 0)
                        found[place] = classes(result.types[part])
    return found


class Renamer:
    """Return the entries of one layer that exist in the tree."""

    def __init__(self, project: Project, table: dict[str, Any], layer: str) -> None:
        self.project = project
        self.doubtful: list[str] = []
        self.assumed: dict[str, list[str]] = table["assumed"]
        self.conflicts: list[str] = []
        every = [row for each in table["layers"] for row in each["names"]]
        self.all_modules = {row["old"]: row["new"] for row in every if row["kind"] in {"package", "module"}}
        self.all_names = {row["old"]: row["new"] for row in every if row["kind"] not in {"package", "module"}}
        rows = [row for each in table["layers"] if layer in ("all", each["layer"]) for row in each["names"]]
        self.modules: dict[str, str] = {}
        self.names: dict[str, Entry] = {}
        self.members: dict[str, list[Entry]] = defaultdict(list)
        self.entries: list[Entry] = []
        for row in rows:
            self.take(Entry(row["kind"], row["old"], row["new"], row.get("strings", False)))
        for old, new in list(self.modules.items()):
            self.move_test(old, new)
        self.implementers = {id(entry): self.implementing(entry) for rows in self.members.values() for entry in rows}
        self.types: dict[tuple[str, int, int, int, int], list[str] | None] = {}
        if self.members:
            self.types = cached_types(project, re.compile(rf"\b({'|'.join(map(re.escape, self.members))})\b"))

    def present(self, old: str) -> str | None:
        """Return the present full name of `old`, after earlier layers."""
        parts = old.split(".")
        choices = [old]
        for length in range(len(parts), 0, -1):
            prefix = ".".join(parts[:length])
            rest = parts[length:]
            for moved in (self.all_modules.get(prefix), prefix):
                if moved is None:
                    continue
                choices.append(".".join((moved, *rest)))
                if len(rest) == 2 and f"{prefix}.{rest[0]}" in self.all_names:
                    choices.append(".".join((moved, self.all_names[f"{prefix}.{rest[0]}"], rest[1])))
        for package, moved in self.all_modules.items():
            choices += [moved + choice.removeprefix(package) for choice in choices if choice.startswith(package + ".")]
        return next((choice for choice in choices if self.project.has(choice)), None)

    def take(self, entry: Entry) -> None:
        old = self.present(entry.old)
        is_module = entry.kind in {"package", "module"}
        if old is None or (is_module and old == entry.new):
            print(f"skipped: {entry.old} is not there")
            return
        entry.old = old
        self.entries.append(entry)
        if is_module:
            self.modules[old] = entry.new
        elif entry.kind in MEMBERS:
            self.members[entry.name].append(entry)
        else:
            self.names[old] = entry

    def move_test(self, old: str, new: str) -> None:
        """Rename the test that mirrors a module, too."""
        head, *rest = old.split(".")
        if head not in TESTS:
            return
        for prefix in ("test_", ""):
            here = ".".join((TESTS[head].replace("/", "."), *rest[:-1], prefix + rest[-1]))
            if here in self.project.modules:
                there = new.split(".")
                base = TESTS[there[0]].replace("/", ".")
                self.modules[here] = ".".join((base, *there[1:-1], prefix + there[-1]))

    def module(self, name: str) -> str:
        """Return the new name of a module: the longest renamed package determines the names below it."""
        if name in self.modules:
            return self.modules[name]
        base, _, last = name.rpartition(".")
        return f"{self.module(base)}.{last}" if base else name

    def implementing(self, entry: Entry) -> set[str]:
        """Return the classes that have all members of a protocol without inheriting from it."""
        module, _, last = entry.owner.rpartition(".")
        source = self.project.by_module.get(module)
        if not source or last not in source.classes:
            return set()
        node = source.classes[last]
        if not any(dotted_of(base) == "Protocol" for base in node.bases):
            return set()
        methods = {name for name in members_of(node) if not name.startswith("_")}
        having = [set(self.project.members.get(name, ())) for name in methods]
        return set.intersection(*having)

    def member(self, name: str, classes: set[str] | list[str]) -> Entry | None:
        for entry in self.members.get(name, ()):
            if entry.owner in classes or self.implementers[id(entry)].intersection(classes):
                return entry
        return None

    def unique(self, name: str, among: set[str] | None = None) -> Entry | None:
        """Return the entry of a member if no other class of the tree, or of these modules, has that name."""
        entries = self.members.get(name, [])
        if not entries or name in FOREIGN:
            return None
        owners = [each for each in self.project.members[name] if not among or each.rpartition(".")[0] in among]
        if not owners:
            return None
        for owner in owners:
            if not self.member(name, self.project.family(owner)):
                return None
        return entries[0] if len({entry.new for entry in entries}) == 1 else None

    def dotted(self, match: re.Match[str]) -> str:
        """Rename a dotted path in a text, with an optional class after a colon."""
        whole = match.group(1) + match.group(2)
        parts = whole.split(".")
        length = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in self.project.modules), 0)
        if not length:
            return match.group(0)
        module, rest = ".".join(parts[:length]), parts[length:]
        colon = (match.group(3) or "")[1:]
        if colon:
            return self.module(module) + "".join(f".{part}" for part in rest) + ":" + self.symbol(module, [colon])
        return self.module(module) + (f".{self.symbol(module, rest)}" if rest else "")

    def symbol(self, module: str, parts: list[str]) -> str:
        """Rename `Class.member` of a module."""
        full = self.project.resolve(f"{module}.{parts[0]}")
        found = [self.names[full].new if full in self.names else parts[0], *parts[1:]]
        if len(parts) > 1 and (entry := self.member(parts[1], self.project.family(full))):
            found[1] = entry.new
        return ".".join(found)

    def text(self, text: str, used: dict[str, str] | None = None) -> str:
        """Rename in a text without code: dotted paths, file paths, and code spans."""
        text = DOTTED.sub(self.dotted, text)
        for old, new in sorted(self.modules.items(), key=lambda pair: -len(pair[0])):
            here, there = file_of(old).split("/", 1)[-1], file_of(new).split("/", 1)[-1]
            if old.startswith("cpsched."):
                here, there = file_of(old), file_of(new)
            if here in text:
                text = re.sub(
                    rf"(?<![\w.-]){re.escape(here)}(?=[/.\s`'\")\],*:]|$)(?!\.[a-z]{{1,4}}(?<!\.py)\b)", there, text
                )
        return SPAN.sub(lambda match: self.span(match, used or {}), text)

    def span(self, match: re.Match[str], used: dict[str, str]) -> str:
        """Rename a code span: a name of its file, a class, or the end of a dotted path."""
        words, call = match.groups()
        head, _, rest = words.partition(".")
        if words in used:
            return f"`{used[words]}{call}`"
        if head in used and rest:
            return f"`{used[head]}.{rest}{call}`"
        for name, entry in self.names.items():
            if entry.name == head and self.is_only_one(entry):
                return f"`{self.symbol(name.rpartition('.')[0], words.split('.'))}{call}`"
        if words.endswith(".py"):
            found = [name for name in self.modules if name.endswith("." + words[:-3].replace("/", "."))]
            same = [name for name in self.project.modules if name.endswith("." + words[:-3].replace("/", "."))]
            if len(found) == len(same) == 1:
                return f"`{'/'.join(self.modules[found[0]].split('.')[-1 - words.count('/') :])}.py`"
        elif rest:
            parts = words.split(".")
            for length in range(len(parts), 0, -1):
                found = [name for name in self.project.modules if name.endswith("." + ".".join(parts[:length]))]
                if len(found) == 1:
                    module = self.module(found[0]).split(".")[-length:]
                    tail = [self.symbol(found[0], parts[length:])] if parts[length:] else []
                    return f"`{'.'.join((*module, *tail))}{call}`"
        return match.group(0)

    def is_only_one(self, entry: Entry) -> bool:
        """Return whether a class or constant has a unique name, so that a text is unambiguous."""
        if entry.kind not in {"class", "constant"} or entry.name.islower():
            return False
        return sum(source.names.get(entry.name, "") is None for source in self.project.by_module.values()) == 1


class FileRewriter:
    """One Python text and its edits."""

    def __init__(self, renamer: Renamer, source: Source) -> None:
        self.renamer, self.project, self.source = renamer, renamer.project, source
        self.lines = source.text.encode().splitlines(keepends=True)
        self.offsets = [0]
        for line in self.lines:
            self.offsets.append(self.offsets[-1] + len(line))
        self.data = source.text.encode()
        self.edits: dict[tuple[int, int], str] = {}
        self.used: dict[str, str] = {}
        self.scopes: list[Scope] = []

    def at(self, line: int, column: int) -> int:
        return self.offsets[line - 1] + column

    def edit(self, start: int, old: str, new: str) -> None:
        if old != new and self.data[start : start + len(old.encode())] == old.encode():
            self.edits[(start, start + len(old.encode()))] = new

    def rewritten(self) -> str:
        tree, source = self.source.tree, self.source
        self.scopes = [Scope(tree, source.names)]
        self.choose_kept()
        self.visit_all(tree)
        self.tokens()
        data = self.data
        for (start, end), text in sorted(self.edits.items(), reverse=True):
            data = data[:start] + text.encode() + data[end:]
        return data.decode()

    # Imported names that keep their old name in this file because the new one is taken.
    def choose_kept(self) -> None:
        bound: set[str] = set(self.source.names)
        for node in ast.walk(self.source.tree):
            if isinstance(
                node,
                ast.FunctionDef
                | ast.AsyncFunctionDef
                | ast.Lambda
                | ast.ListComp
                | ast.SetComp
                | ast.DictComp
                | ast.GeneratorExp,
            ):
                bound |= set(bound_in(node, self.source.module, self.source.is_package))
        self.bound = bound

    def new_bound(self, name: str, full: str) -> str:
        """Return the name under which `full` is bound in this file from now on."""
        new = self.new_name(full)
        if new is None or new == name:
            return name
        if new in self.bound:
            return name
        return new

    def new_name(self, full: str) -> str | None:
        if full in self.project.modules:
            new = self.renamer.module(full)
            return new.rpartition(".")[2] if new != full else None
        entry = self.renamer.names.get(full)
        return entry.new if entry else None

    # Names
    def lookup(self, name: str) -> tuple[str | None, bool]:
        """Return the full name of a name, and whether an import binds it; None for a local value."""
        for depth, scope in enumerate(reversed(self.scopes)):
            if scope.is_class and depth:
                continue
            if name in scope.bound:
                target = scope.bound[name]
                if target is not None:
                    return self.project.resolve(target), True
                if scope is self.scopes[0]:
                    return f"{self.source.module}.{name}", False
                return None, False
        return None, False

    def visit_all(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self.visit(child)

    def inside(self, node: ast.AST, is_class: bool = False) -> None:
        bound = bound_in(node, self.source.module, self.source.is_package)
        self.scopes.append(Scope(node, bound, is_class))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.definition(node)
            for part in (*node.decorator_list, node.returns, *node.args.defaults, *node.args.kw_defaults):
                if part:
                    self.visit(part)
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg) and argument.annotation:
                    self.visit(argument.annotation)
            self.inside(node)
            for statement in node.body:
                self.visit(statement)
            self.scopes.pop()
            return
        if isinstance(node, ast.ClassDef):
            self.definition(node)
            for part in (*node.decorator_list, *node.bases, *(word.value for word in node.keywords)):
                self.visit(part)
            self.inside(node, is_class=True)
            for statement in node.body:
                self.visit(statement)
            self.scopes.pop()
            return
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            self.inside(node)
            self.visit_all(node)
            self.scopes.pop()
            return
        if isinstance(node, ast.Import):
            self.plain_import(node)
            return
        if isinstance(node, ast.ImportFrom):
            self.from_import(node)
            return
        if isinstance(node, ast.Name):
            self.name(node)
        elif isinstance(node, ast.Attribute):
            self.attribute(node)
        elif isinstance(node, ast.Call):
            self.call(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            self.assigned(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.string(node)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            self.global_names(node)
        self.visit_all(node)

    def global_names(self, node: ast.Global | ast.Nonlocal) -> None:
        start = self.at(node.lineno, node.col_offset)
        text = self.data[start : self.at(node.end_lineno or 0, node.end_col_offset or 0)].decode()
        for name in node.names:
            entry = self.renamer.names.get(f"{self.source.module}.{name}")
            if entry and (found := re.search(rf"\b{name}\b", text[6:])):
                self.edit(start + 6 + found.start(), name, entry.new)

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        start = self.at(node.lineno, node.col_offset)
        match = re.compile(rb"(?:async\s+)?(?:def|class)\s+").match(self.data, start)
        assert match, (self.source.path, node.lineno)
        if len(self.scopes) == 1:
            entry = self.renamer.names.get(f"{self.source.module}.{node.name}")
        elif self.scopes[-1].is_class:
            entry = self.own_member(node.name)
        else:
            return
        if entry:
            if len(self.scopes) == 1 and entry.new in self.bound and self.source.names.get(entry.new, "") is None:
                self.renamer.conflicts.append(f"{self.source.path}:{node.lineno}: {entry.new} is there already")
            self.edit(match.end(), node.name, entry.new)
            self.used[node.name] = entry.new
            entry.uses += 1

    def own_member(self, name: str) -> Entry | None:
        """Return the entry of a member of the class being read."""
        if name not in self.renamer.members:
            return None
        node = self.scopes[-1].node
        assert isinstance(node, ast.ClassDef)
        family = {f"{self.source.module}.{node.name}"}
        for base in node.bases:
            if dotted := dotted_of(base):
                head, _, rest = dotted.partition(".")
                full, _ = self.lookup_outside(head)
                if full:
                    family |= self.project.family(self.project.resolve(".".join(filter(None, (full, rest)))))
        return self.renamer.member(name, family)

    def lookup_outside(self, name: str) -> tuple[str | None, bool]:
        inner = self.scopes.pop()
        try:
            return self.lookup(name)
        finally:
            self.scopes.append(inner)

    def name(self, node: ast.Name) -> None:
        if self.scopes[-1].is_class and not isinstance(node.ctx, ast.Load):
            if entry := self.own_member(node.id):
                self.edit(self.at(node.lineno, node.col_offset), node.id, entry.new)
                self.used[node.id] = entry.new
                entry.uses += 1
            return
        full, imported = self.lookup(node.id)
        if full is None:
            return
        if imported:
            is_alias = not (full.endswith("." + node.id) or full == node.id)
            new = node.id if is_alias else self.new_bound(node.id, full)
        else:
            entry = self.renamer.names.get(full)
            new = entry.new if entry else node.id
            if entry:
                entry.uses += 1
                self.used[node.id] = new
                for scope in self.scopes[1:]:
                    if new in scope.bound and not scope.is_class:
                        where = f"{self.source.path}:{node.lineno}"
                        self.renamer.conflicts.append(f"{where}: {new} is a local name where {node.id} is used")
        self.edit(self.at(node.lineno, node.col_offset), node.id, new)

    def classes_at(self, node: ast.AST) -> list[str] | None:
        """Return the possible classes of a value, by its name or by mypy; None if unknown."""
        if dotted := dotted_of(node) if isinstance(node, ast.Name | ast.Attribute) else None:
            head, _, rest = dotted.partition(".")
            full, _ = self.lookup(head)
            if full:
                whole = self.project.resolve(".".join(filter(None, (full, rest))))
                module, _, last = whole.rpartition(".")
                if module in self.project.by_module and last in self.project.by_module[module].classes:
                    return list(self.project.family(whole))
        place = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return self.renamer.types.get((self.source.path, *place))

    def module_at(self, node: ast.AST) -> str | None:
        if dotted := dotted_of(node) if isinstance(node, ast.Name | ast.Attribute) else None:
            head, _, rest = dotted.partition(".")
            full, _ = self.lookup(head)
            if full and (whole := self.project.resolve(".".join(filter(None, (full, rest))))) in self.project.modules:
                return whole
        return None

    def attribute(self, node: ast.Attribute) -> None:
        start = self.at(node.end_lineno or 0, node.end_col_offset or 0) - len(node.attr.encode())
        if module := self.module_at(node.value):
            full = self.project.resolve(f"{module}.{node.attr}")
            if (new := self.new_name(full)) and full.endswith("." + node.attr):
                self.edit(start, node.attr, new)
                self.used[node.attr] = new
            return
        if entry := self.member_at(node.value, node.attr, node.lineno):
            self.edit(start, node.attr, entry.new)
            self.used[node.attr] = entry.new
            entry.uses += 1

    def member_at(self, value: ast.AST, name: str, line: int) -> Entry | None:
        if name not in self.renamer.members:
            return None
        classes = self.classes_at(value)
        if dotted_of(value.func if isinstance(value, ast.Call) else value) in {"self", "cls", "super"}:
            for scope in reversed(self.scopes):
                if isinstance(scope.node, ast.ClassDef):
                    classes = [*(classes or ()), *self.family_of(scope)]
                    break
        if classes is not None:
            families = set(classes).union(*(self.project.family(each) for each in classes))
            return self.renamer.member(name, families)
        if name in self.renamer.assumed.get(self.source.path.partition("#")[0], ()):
            return self.renamer.members[name][0]
        entry = self.renamer.unique(name) or self.renamer.unique(name, among=self.imported())
        if entry:
            return entry
        self.renamer.doubtful.append(f"{self.source.path}:{line}: .{name}")
        return None

    def imported(self) -> set[str]:
        """Return the modules that this file imports, or imports names from."""
        full = [self.project.resolve(name) for name in self.source.names.values() if name]
        return {name if name in self.project.modules else name.rpartition(".")[0] for name in full} | {
            self.source.module
        }

    def family_of(self, scope: Scope) -> set[str]:
        assert isinstance(scope.node, ast.ClassDef)
        family = {f"{self.source.module}.{scope.node.name}"}
        for base in scope.node.bases:
            if dotted := dotted_of(base):
                head, _, rest = dotted.partition(".")
                full, _ = self.lookup(head)
                if full:
                    family |= self.project.family(self.project.resolve(".".join(filter(None, (full, rest)))))
        return family

    def call(self, node: ast.Call) -> None:
        dotted = dotted_of(node.func)
        last = (dotted or "").rpartition(".")[2]
        if last in BY_NAME and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            self.by_name(node.args[0], node.args[1])
        if not any(word.arg in self.renamer.members for word in node.keywords if word.arg):
            return
        is_copy = last in {"replace", "_replace", "evolve"}
        of = node.func.value if last == "_replace" and isinstance(node.func, ast.Attribute) else node.func
        if is_copy and last == "replace" and node.args:
            of = node.args[0]
        classes = self.classes_at(of)
        for word in node.keywords:
            if not word.arg or word.arg not in self.renamer.members:
                continue
            entry = None
            if classes is not None:
                families = set(classes).union(*(self.project.family(each) for each in classes))
                entry = self.renamer.member(word.arg, families)
            elif is_copy and (found := self.renamer.unique(word.arg)):
                entry = found
            if entry:
                self.edit(self.at(word.lineno, word.col_offset), word.arg, entry.new)
                entry.uses += 1

    def by_name(self, of: ast.AST, name: ast.Constant) -> None:
        """Rename in `setattr(thing, "name", ...)` and similar calls."""
        if not isinstance(name.value, str):
            return
        new = None
        if module := self.module_at(of):
            full = self.project.resolve(f"{module}.{name.value}")
            new = self.new_name(full) if full.endswith("." + name.value) else None
        elif entry := self.member_at(of, name.value, name.lineno):
            new = entry.new
        if new:
            self.inside_string(name, name.value, new)

    def inside_string(self, node: ast.Constant, old: str, new: str) -> None:
        start = self.at(node.lineno, node.col_offset)
        segment = self.data[start : self.at(node.end_lineno or 0, node.end_col_offset or 0)]
        if segment[1:-1] == old.encode():
            self.edits[(start + 1, start + 1 + len(old.encode()))] = new

    def string(self, node: ast.Constant) -> None:
        """Rename a text that equals a name, in a file where such texts are names."""
        for entry in self.renamer.names.values():
            if entry.strings and entry.name == node.value:
                self.inside_string(node, entry.name, entry.new)
        for entry in self.renamer.members.get(node.value, ()):
            if entry.strings and entry.owner.rpartition(".")[0] == self.source.module:
                self.inside_string(node, entry.name, entry.new)

    def assigned(self, node: ast.Assign | ast.AnnAssign) -> None:
        """Rename in `__all__` and in a package's lists of exported names."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if not names & LISTS or node.value is None:
            return
        for each in ast.walk(node.value):
            if not isinstance(each, ast.Constant) or not isinstance(each.value, str):
                continue
            full = self.project.resolve(f"{self.source.module}.{each.value}")
            relative = f"{self.source.module}.{each.value}"
            is_submodule = self.source.names.get(each.value, relative) == relative
            if relative in self.project.modules and (names & {"_HOMES"} or is_submodule):
                self.inside_string(
                    each, each.value, self.renamer.module(relative).removeprefix(self.source.module + ".")
                )
            elif (new := self.new_name(full)) and full not in self.project.modules:
                self.inside_string(each, each.value, new)

    # Imports
    def plain_import(self, node: ast.Import) -> None:
        for name in node.names:
            new = self.renamer.module(name.name)
            if new != name.name:
                self.edit(self.at(name.lineno, name.col_offset), name.name, new)

    def from_import(self, node: ast.ImportFrom) -> None:
        base = target_of(node, self.source.module, self.source.is_package)
        if base not in self.project.modules:
            return
        rows: list[tuple[str, str, str | None]] = []
        for name in node.names:
            full = self.project.resolve(f"{base}.{name.name}")
            bound = name.asname or name.name
            if f"{base}.{name.name}" in self.project.modules:
                home, _, new = self.renamer.module(f"{base}.{name.name}").rpartition(".")
            else:
                entry = self.renamer.names.get(full)
                home, new = self.renamer.module(base), entry.new if entry else name.name
            if new != name.name and not name.asname and self.new_bound(name.name, full) == name.name:
                rows.append((home, new, name.name))
            else:
                rows.append((home, new, name.asname if name.asname != new else None))
            if new != name.name:
                self.used.setdefault(bound, new if not name.asname else bound)
        homes = {home for home, _, _ in rows}
        if homes == {base} and all(new == name.name for (_, new, _), name in zip(rows, node.names, strict=True)):
            return
        indent = " " * node.col_offset
        start, end = self.at(node.lineno, node.col_offset), self.at(node.end_lineno or 0, node.end_col_offset or 0)
        line_end = self.data.find(b"\n", end)
        noqa = re.search(rb"  # noqa[^\n]*", self.data[start:line_end])
        if noqa:
            end = line_end
        statements = []
        for home in sorted(homes):
            parts = [new + (f" as {alias}" if alias else "") for where, new, alias in rows if where == home]
            one = f"from {home} import {', '.join(parts)}"
            if len(indent + one) > WIDTH or noqa:
                one = (
                    f"from {home} import ({noqa.group().decode() if noqa else ''}\n"
                    + "".join(f"{indent}    {part},\n" for part in parts)
                    + f"{indent})"
                )
            statements.append(one)
        self.edits[(start, end)] = f"\n{indent}".join(statements)

    def local_names(self) -> set[str]:
        """Return parameters and local names: a code span with one of them is not renamed."""
        scopes = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        found = (bound_in(node, "", False) for node in ast.walk(self.source.tree) if isinstance(node, scopes))
        return {name for bound in found for name, full in bound.items() if full is None}

    def code_in(self, token: str) -> str | None:
        """Return a text that is a program, or None."""
        match = re.fullmatch(r'("""|"|\'\'\'|\')(.*)\1', token, re.DOTALL)
        if not match or "import" not in token or "cpsched" not in token or "\\" in token:
            return None
        inner = textwrap.dedent(match.group(2))
        try:
            source = Source(self.source.path, inner, ast.parse(inner), self.source.path, False, {})
        except SyntaxError:
            return None
        source.names = bound_in(source.tree, source.path, False)
        indent = match.group(2)[: len(match.group(2)) - len(match.group(2).lstrip())].rpartition("\n")[2]
        new = textwrap.indent(FileRewriter(self.renamer, source).rewritten(), indent)
        return match.group(1) + new + match.group(1) if new != match.group(2) else None

    def doctests_in(self, token: str) -> str:
        """Rewrite the examples of a docstring, and class names in their output."""
        if ">>> " not in token:
            return token
        examples = doctest.DocTestParser().get_examples(token)
        every = ast.parse("\n".join(example.source for example in examples))
        path = f"{self.source.path}#doctest"  # the types that mypy found belong to places in the file itself
        names = self.source.names | bound_in(every, self.source.module, self.source.is_package)
        lines = token.split("\n")
        for example in reversed(examples):
            code = example.source
            source = Source(path, code, ast.parse(code), self.source.module, self.source.is_package, names)
            new = FileRewriter(self.renamer, source).rewritten()
            starts = {statement.lineno for statement in ast.parse(new).body}
            indent = " " * example.indent
            shown = [
                f"{indent}{'>>>' if number in starts else '...'} {line}".rstrip()
                for number, line in enumerate(new.rstrip("\n").split("\n"), 1)
            ]
            after = example.lineno + example.source.count("\n")
            printed = lines[after : after + example.want.count("\n")]
            for entry in self.renamer.names.values():
                if self.renamer.is_only_one(entry):
                    printed = [re.sub(rf"\b{entry.name}\b", entry.new, line) for line in printed]
            lines[example.lineno : after + len(printed)] = shown + printed
        return "\n".join(lines)

    # Comments, docstrings and other texts
    def tokens(self) -> None:
        names = {old: new for old, new in self.used.items() if old != new and old not in self.local_names()}
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(self.source.text).readline))
        except tokenize.TokenError:
            return
        lines = self.source.text.splitlines(keepends=True)
        for token in tokens:
            kinds = {tokenize.COMMENT, tokenize.STRING}
            if token.type not in kinds:
                continue
            row, column = token.start
            start = self.offsets[row - 1] + len(lines[row - 1][:column].encode())
            end = start + len(token.string.encode())
            if any(start <= a and b <= end for a, b in self.edits):
                continue
            new = self.code_in(token.string) or self.renamer.text(self.doctests_in(token.string), names)
            if new != token.string:
                self.edits[(start, end)] = new


def python_blocks(renamer: Renamer, path: str, text: str) -> str:
    """Rename in the Python blocks of a documentation page."""

    def rewrite(match: re.Match[str]) -> str:
        code = match.group(2)
        try:
            source = Source(path, code, ast.parse(code), path, False, {})
        except SyntaxError:
            return match.group(0)
        source.names = bound_in(source.tree, path, False)
        return match.group(1) + FileRewriter(renamer, source).rewritten() + match.group(3)

    return re.sub(r"(^```python[^\n]*\n)(.*?)(^```)", rewrite, text, flags=re.DOTALL | re.MULTILINE)


def notebook(renamer: Renamer, path: str, text: str) -> str:
    """Rename in the cells of a notebook."""
    content = json.loads(text)
    dumped = lambda: json.dumps(content, indent=1, ensure_ascii=False) + "\n"  # noqa: E731
    if dumped() != text:
        return text
    for cell in content["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code":
            code = python_blocks(renamer, path, f"```python\n{code}\n```")[len("```python\n") : -len("\n```")]
        else:
            code = renamer.text(code)
        cell["source"] = code.splitlines(keepends=True)
    return dumped()


def contracts(renamer: Renamer, text: str) -> str:
    """Rename the layers of import-linter's contracts, which are relative to a container."""

    def block(match: re.Match[str]) -> str:
        whole = match.group(0)
        container = re.search(r'containers = \["([\w.]+)"\]', whole)
        if not container:
            return whole

        def layer(names: re.Match[str]) -> str:
            shown = [
                renamer.module(f"{container.group(1)}.{name}").rpartition(".")[2]
                if f"{container.group(1)}.{name}" in renamer.project.modules
                else name
                for name in names.group(1).split(" | ")
            ]
            return f'"{" | ".join(shown)}"'

        return re.sub(r"(?<=layers = \[)[^\]]*", lambda found: re.sub(r'"([\w| ]+)"', layer, found.group(0)), whole)

    return re.sub(r"\[\[tool\.importlinter\.contracts\]\].*?(?=\n\[|\Z)", block, text, flags=re.DOTALL)


def write_former_names(renamer: Renamer) -> None:
    """Add the layer's modules and classes to the tables of `cpsched.former_names`."""
    path = Path("cpsched/former_names.py")
    if not path.exists():
        return
    text, tables = path.read_text(), {}
    for name in ("MODULES", "CLASSES"):
        found = re.search(rf"^{name}: Mapping\[str, str\] = (\{{.*?\}})$", text, re.MULTILINE | re.DOTALL)
        assert found, name
        tables[name] = ast.literal_eval(found[1])
    known = [name for name in renamer.project.modules if name.split(".")[0] in ROOTS]
    moved = {name: renamer.module(name) for name in known if renamer.module(name) != name}
    tables["MODULES"] = {old: moved.get(new, new) for old, new in tables["MODULES"].items()} | moved
    for old, entry in renamer.names.items():
        passed_on = {name for root in ROOTS for name in renamer.project.by_module[root].names}
        if (entry.kind == "class" or entry.name in passed_on) and old.split(".")[0] in ROOTS:
            tables["CLASSES"][":".join(old.rsplit(".", 1))] = entry.new
    for name, rows in tables.items():
        shown = "".join(f'    "{old}": "{new}",\n' for old, new in sorted(rows.items()))
        pattern = rf"(^{name}: Mapping\[str, str\] = )\{{.*?\}}$"
        text = re.sub(pattern, rf"\1{{\n{shown}}}", text, count=1, flags=re.MULTILINE | re.DOTALL)
    path.write_text(text)


def move(renamer: Renamer) -> None:
    """Move the files of modules and packages, deepest first."""
    for old, new in sorted(renamer.modules.items(), key=lambda pair: -pair[0].count(".")):
        here = Path(file_of(old))
        parent = new.rpartition(".")[0]
        present = old.rpartition(".")[0]
        if renamer.module(present) == parent:
            parent = present  # the package itself moves later
        there = Path(file_of(f"{parent}.{new.rpartition('.')[2]}"))
        if not here.is_dir():
            here, there = here.with_suffix(".py"), there.with_suffix(".py")
        there.parent.mkdir(parents=True, exist_ok=True)
        run("git", "mv", str(here), str(there))


def wrapped(path: str, number: int) -> bool:
    """Break a comment or docstring line that is too long; return False if that is unsafe."""
    file = Path(path)
    lines = file.read_text().splitlines(keepends=True)
    line = lines[number - 1].rstrip("\n")
    code, indent = line.strip(), line[: len(line) - len(line.lstrip())]
    cut = line.rfind(" ", 0, WIDTH)
    if cut <= len(indent):
        return False
    tree = ast.parse(file.read_text())
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    inside = [node for node in texts if node.lineno <= number <= (node.end_lineno or 0)]
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    if code.startswith("#"):
        rest = f"{indent}# {line[cut + 1 :]}"
    elif inside and id(inside[-1]) in statements:
        bullet = "  " if code.startswith("- ") else ""
        rest = indent + bullet + line[cut + 1 :]
        if number == inside[-1].end_lineno == inside[-1].lineno and rest.endswith('"""'):
            rest = f'{rest[:-3]}\n{indent}"""'
    elif "  # " in line and not code.startswith("#"):
        code, _, comment = line.rpartition("  # ")
        lines[number - 1] = f"{indent}# {comment}\n{code}\n"
        file.write_text("".join(lines))
        return True
    elif not any(
        token.start[0] <= number < token.end[0]
        for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline)
        if token.type == tokenize.STRING
    ):
        lines[number - 1] = f"{line}  # noqa: E501\n"
        file.write_text("".join(lines))
        return True
    else:
        return False
    lines[number - 1] = f"{line[:cut].rstrip()}\n{rest}\n"
    file.write_text("".join(lines))
    return True


def ruff() -> list[str]:
    """Sort imports, format, break long lines; what remains to be done by hand."""
    binary = str(Path(sys.executable).with_name("ruff"))
    for _ in range(3):
        run(binary, "check", "--fix", "--quiet", "--select", "I,RUF022,F401", ".", check=False)
        run(binary, "format", "--quiet", ".", check=False)
        found = json.loads(run(binary, "check", "--output-format", "json", ".", check=False) or "[]")
        long = [each for each in found if each["code"] == "E501"]
        done = [
            wrapped(each["filename"], each["location"]["row"])
            for each in sorted(long, key=lambda each: -each["location"]["row"])
        ]
        if not any(done):
            break
    return [
        f"{Path(each['filename']).relative_to(Path.cwd())}:{each['location']['row']}: {each['code']} {each['message']}"
        for each in found
    ]


def texts() -> Iterator[str]:
    for path in tracked():
        if not UNTOUCHED.match(path) and not path.endswith(".py") and Path(path).suffix in TEXTS | {".ipynb"}:
            yield path


def main() -> int:
    """Apply one layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layer", help="a layer of the table, or `all`; `list` prints them")
    parser.add_argument("--check", action="store_true", help="print what stands in the way, and write nothing")
    chosen = parser.parse_args()
    table = yaml.safe_load(TABLE.read_text())
    names = [each["layer"] for each in table["layers"]]
    if chosen.layer not in (*names, "all"):
        print("\n".join(names))
        return chosen.layer != "list"
    project = Project()
    renamer = Renamer(project, table, chosen.layer)
    written: dict[str, str] = {}
    for path, source in project.sources.items():
        if not UNTOUCHED.match(path):
            written[path] = FileRewriter(renamer, source).rewritten()
    for path in texts():
        try:
            before = Path(path).read_text()
        except UnicodeDecodeError:
            continue
        if path.endswith(".ipynb"):
            written[path] = notebook(renamer, path, before)
            continue
        after = python_blocks(renamer, path, before) if path.endswith(".md") else before
        after = contracts(renamer, after) if path == "pyproject.toml" else after
        written[path] = renamer.text(after)
    for line in (*renamer.conflicts, *(f"not renamed, type unknown: {line}" for line in renamer.doubtful)):
        print(line)
    for entry in renamer.entries:
        if entry.kind in MEMBERS and not entry.uses:
            print(f"no use found: {entry.old}")
    if chosen.check:
        return bool(renamer.conflicts)
    for path, text in written.items():
        if Path(path).read_text() != text:
            Path(path).write_text(text)
    write_former_names(renamer)
    move(renamer)
    for line in ruff():
        print(line)
    print(f"{chosen.layer}: {len(renamer.entries)} names, {len(renamer.conflicts)} conflicts")
    return bool(renamer.conflicts)


if __name__ == "__main__":
    sys.exit(main())
