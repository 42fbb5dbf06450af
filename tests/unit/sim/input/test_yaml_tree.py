"""Untrusted YAML files: what is accepted, and the line and rule in each error."""

import re

import pytest
from pydantic import BaseModel, ConfigDict, Field

from cpsched_sim.errors import InputError, InvalidFile
from cpsched_sim.input import yaml_tree as trees
from cpsched_sim.input.input_limits import MAX_YAML_BYTES, MAX_YAML_DEPTH, MAX_YAML_INTEGER
from cpsched_sim.input.yaml_tree import YamlTree, parse_yaml_tree, read_yaml_tree


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1
    names: list[str] = []


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: int = Field(default=1, gt=0)
    inner: Inner = Inner()


def parsed(tmp_path, text):
    return parse_yaml_tree(tmp_path / "f.yaml", text)


def refused(tmp_path, text):
    with pytest.raises(InvalidFile) as error:
        parse_yaml_tree(tmp_path / "f.yaml", text)
    return str(error.value).removeprefix(f"{tmp_path}/f.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: [x, 2.5, true, null, ~, 'no']", {"a": 1, "b": ["x", 2.5, True, None, None, "no"]}),
        ("day: 2026-11-21", {"day": "2026-11-21"}),
        ("'1': 0x10", {"1": 16}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ('a: "tab\\tline\\nblank\\u00a0"', {"a": "tab\tline\nblank\u00a0"}),
        ("! a: b", {"a": "b"}),
        (f"a: {MAX_YAML_INTEGER}\nb: -{MAX_YAML_INTEGER}", {"a": MAX_YAML_INTEGER, "b": -MAX_YAML_INTEGER}),
        ("", None),
        ("# nothing", None),
    ],
)
def test_reads_plain_values(tmp_path, text, value):
    assert parsed(tmp_path, text).content == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: !!int x", ":2: yaml: tag:yaml.org,2002:int: must be removed: tags are not supported"),
        ("a: 1\nb: 2\na: 3", ":3: a: given twice: must occur only once"),
        ("a: 1\n[1, 2]: 3", ":2: yaml: a list or mapping: must not be a key"),
        ('a: 1\nb: "x\\u0007"', ":2: text: "),
        ('a: 1\nb: "x\\0"', ":2: text: "),
        (f"a: 1\nb: {MAX_YAML_INTEGER + 1}", ":2: number: "),
        (f"a: 1\nb: -{MAX_YAML_INTEGER + 1}", "must be within 64 bits"),
        ("a: 1\nb: [", ":2: yaml: b: [: must be YAML: expected"),
        ("a: 1\n\x07", ":2: yaml"),
        ("a: 1\n\x07", "must not contain control characters"),
        ("a: 1\n---\nb: 2", ":2: yaml"),
        ('a: "\\UFFFFFFFF"', ":1: yaml"),
        ("a: &x\n  b: *x", "must not expand to more than"),
    ],
)
def test_rejected_content_names_line_and_rule(tmp_path, text, message):
    assert message in refused(tmp_path, text)


def test_bounds_nesting(tmp_path):
    def nested(depth):
        return "[" * depth + "]" * depth

    mappings = "{a: " * MAX_YAML_DEPTH + "1" + "}" * MAX_YAML_DEPTH
    assert None not in [parsed(tmp_path, text).content for text in (nested(MAX_YAML_DEPTH), mappings)]
    rule = f":1: yaml: nesting: must not be nested deeper than {MAX_YAML_DEPTH}"
    assert rule in refused(tmp_path, nested(MAX_YAML_DEPTH + 1))
    deep = "a: &x " + nested(MAX_YAML_DEPTH - 1) + "\nb: [[*x]]"
    assert "aliases" in refused(tmp_path, deep), "an alias is as deep as what it stands for"


def test_bounds_number_of_values_including_aliases(tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "MAX_YAML_VALUES", 6)
    assert parsed(tmp_path, "[1, 2, 3, 4, 5]").content == [1, 2, 3, 4, 5]
    message = refused(tmp_path, "- 1\n- 2\n- 3\n- 4\n- 5\n- 6\n- 7")
    assert message.startswith(":7: yaml: values")
    assert "must be at most 6" in message
    assert parsed(tmp_path, "[&x [1], *x]").content == [[1], [1]]
    assert "aliases" in refused(tmp_path, "[&x [1], *x, *x]"), "seven in all: lists count too"


def test_reads_file_up_to_size_bound(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n" + b"#" * (MAX_YAML_BYTES - 8))
    assert read_yaml_tree(path).content == {"a": 1}
    path.write_bytes(b"a: 1\n" + b"#" * (MAX_YAML_BYTES - 4))
    with pytest.raises(InvalidFile, match=re.escape(f"{path}:1: file: f.yaml: must not be larger than")):
        read_yaml_tree(path)


def test_invalid_utf8_names_its_line(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InvalidFile, match=r"f\.yaml:2: file: byte 0xff: must be UTF-8 text"):
        read_yaml_tree(path)


def test_missing_file_or_directory_is_input_error(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_yaml_tree(tmp_path / "nothing.yaml")
    with pytest.raises(InputError, match="must be a file"):
        read_yaml_tree(tmp_path)


TEXT = """\
count: 3
inner:
  size: 2
  names:
    - a
    - b
"""


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ((), 1),
        (("count",), 1),
        (("inner",), 2),
        (("inner", "size"), 3),
        (("inner", "names", 1), 6),
        (("inner", "names", 2), 4),
        (("inner", "names", "x"), 4),
        (("inner", "other"), 2),
        (("count", "deeper"), 1),
        (("nothing", "size"), 1),
    ],
)
def test_error_names_line_of_deepest_existing_part(tmp_path, where, line):
    assert parsed(tmp_path, TEXT).line_of(where) == line


def model_error(tmp_path, text, **options):
    with pytest.raises(InvalidFile) as error:
        parsed(tmp_path, text).to_model(Outer, **options)
    return str(error.value).removeprefix(f"{tmp_path}/f.yaml")


def test_converts_file_to_model(tmp_path):
    assert parsed(tmp_path, TEXT).to_model(Outer) == Outer(count=3, inner=Inner(size=2, names=["a", "b"]))
    assert parsed(tmp_path, TEXT).to_model(Inner, at=("inner",), content={"size": 5}) == Inner(size=5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count: 0", ":1: count: 0: must be above 0"),
        ("inner:\n  size: [1]", ":2: inner.size: a list: must be a whole number"),
        ("inner:\n  size: {a: 1}", ":2: inner.size: a mapping: "),
        ("inner:\n  sise: 1", ":2: inner.sise: 1: no such setting; did you mean 'size'?"),
        ("cuont: 1", ":1: cuont: 1: no such setting; did you mean 'count'?"),
        ("zzzzz: 1", ":1: zzzzz: 1: no such setting"),
        (
            "count: 0\ninner:\n  size: x\n  names: 3",
            "0: must be above 0; also wrong: line 3: inner.size: x: must be a whole number; also wrong: line 4: inner",
        ),
    ],
)
def test_model_error_names_its_line(tmp_path, text, message):
    assert message in model_error(tmp_path, text)


def test_names_at_most_five_further_errors(tmp_path):
    assert model_error(tmp_path, "zzzzz: 1").endswith("no such setting")
    many = "".join(f"zz{i}: 1\n" for i in range(8))
    assert model_error(tmp_path, many).endswith("also wrong: line 6: zz5: 1: no such setting")


def test_further_error_names_its_path(tmp_path):
    message = model_error(tmp_path, TEXT, at=("inner",), content={"count": 0, "zzz": 1})
    assert message.startswith(":2: inner.count: 0: ")
    assert message.endswith("also wrong: line 2: inner.zzz: 1: no such setting")


def test_error_of_whole_file_names_file(tmp_path):
    assert str(YamlTree(tmp_path / "x", None).make_error((), 3, "must be more")).endswith("x:1: file: 3: must be more")
