"""Fail on the retired words in tools/words.yaml: `python tools/lint_words.py [--prune] [--all] [PATH ...]`.

This program checks Markdown outside code blocks, notebook text, Python docstrings, comments and string literals, and
comments in YAML, TOML, shell, Lua, Make and systemd files. Names are ignored: code in backticks, and strings of one
word. `--all` also checks the files in the list `unclean`, and `--prune` removes clean files from that list. The last
line reports long Markdown sentences, which do not fail the check.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tools" / "words.yaml"
OURS = ("tools/words.yaml",)
"""Files that contain retired words as data."""
RECORDED = re.compile(r"^(studies/|docs/releases/|tests/(data|golden|corpus/data)/)")
COMMENTED = {".yaml", ".yml", ".toml", ".sh", ".lua", ".mk", ".service", ".timer", ".conf", ""}
STRINGS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
LONG = 25
"""Maximum number of words in a sentence before it is reported as long."""


def main() -> int:
    """Print the findings. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--prune", action="store_true")
    parser.add_argument("paths", nargs="*")
    given = parser.parse_args()
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    rules = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), instead) for words, instead in table["words"].items()]
    unclean = set(table["unclean"] or ())
    found = {path: list(retired(path, rules, table["allow"])) for path in files(given.paths)}
    checked = {path: hits for path, hits in found.items() if given.all or path not in unclean}
    for hits in checked.values():
        print("\n".join(hits), end="\n" if hits else "")
    clean = sorted(path for path in unclean if not found.get(path, given.paths))
    if given.prune:
        lines = TABLE.read_text(encoding="utf-8").splitlines(keepends=True)
        TABLE.write_text("".join(line for line in lines if line.strip()[2:] not in clean), encoding="utf-8")
    elif clean:
        print(f"{TABLE.relative_to(ROOT)}: these have no retired words, and --prune removes them: {', '.join(clean)}")
    print(long_sentences(list(found)))
    return int(any(checked.values()) or bool(clean and not given.prune))


def files(paths: list[str]) -> list[str]:
    """Return the files in the repository to check."""
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    named = (path for path in listed.stdout.splitlines() if path not in OURS and not RECORDED.match(path))
    return [path for path in named if (ROOT / path).is_file()]


def retired(path: str, rules: list[tuple[re.Pattern[str], str]], allowed: list[str]) -> Iterator[str]:
    """Yield a message for each retired word in a file."""
    for number, line in prose(path):
        line = re.sub(r"(?<!`)`[^`]+`(?!`)", "", line)  # names
        for text in allowed:
            line = line.replace(text, "")
        for pattern, instead in rules:
            yield from (f"{path}:{number}: {hit[0]}: write {instead}" for hit in pattern.finditer(line))


def prose(path: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line of prose."""
    try:
        text = (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    suffix = Path(path).suffix
    if suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            text = token.string
            if re.match("[rR]?[fF]", text):  # before Python 3.12, a token with the expressions in braces
                text = re.sub(r"\{[^{}]*\}", "", text)
            if token.type in STRINGS and " " in text:  # a string of one word is a name
                yield from enumerate(text.splitlines(), token.start[0])
    elif suffix == ".md":
        yield from enumerate(without_code(text).splitlines(), 1)
    elif suffix == ".ipynb":
        cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
        yield from ((number, line) for number, cell in enumerate(cells, 1) for line in cell["source"])
    elif suffix in COMMENTED or Path(path).name == "Makefile":
        mark = "--" if suffix == ".lua" else "#"
        yield from ((n, line.partition(mark)[2]) for n, line in enumerate(text.splitlines(), 1) if mark in line)


def without_code(text: str) -> str:
    """Return Markdown with the lines of code blocks replaced by empty lines."""
    return re.sub(r"^( *)```.*?^\1```", lambda hit: "\n" * hit[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)


def long_sentences(paths: list[str]) -> str:
    """Return the number of long Markdown sentences, and the location of the longest one."""
    sentences = [
        (len(sentence.split()), path)
        for path in paths
        if path.endswith(".md")
        for paragraph in re.split(r"\n\n|\n(?=[-|#*\d])", without_code((ROOT / path).read_text(encoding="utf-8")))
        for sentence in re.split(r"(?<=[.!?;])\s+|\|", paragraph)
        if len(sentence.split()) > 2
    ]
    long = [each for each in sentences if each[0] > LONG]
    longest = "; the longest has {} in {}".format(*max(long)) if long else ""
    return f"Markdown: {len(long)} of {len(sentences)} sentences have over {LONG} words{longest}"


if __name__ == "__main__":
    sys.exit(main())
