"""Fail on the retired words of tools/words.yaml: `python tools/lint_words.py [--prune] [--all] [PATH ...]`.

It reads Markdown outside of code blocks, notebooks' text, Python docstrings, comments and string literals, and comments
of YAML, TOML, shell, Lua, Make and systemd files. Names are ignored: code in backticks, and strings of one word.
`--all` also reads the files in the list `unclean`, and `--prune` removes clean files from that list. The last line
reports long sentences of Markdown, which do not fail the check.
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
OURS = ("tools/words.yaml", "cpsched/former_names.py")
"""Files that contain retired words as data."""
RECORDED = re.compile(r"^(studies/|docs/releases/|tests/(data|golden|corpus/data)/)")
COMMENTED = {".yaml", ".yml", ".toml", ".sh", ".lua", ".mk", ".service", ".timer", ".conf", ""}
STRINGS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
LONG = 25
"""Maximum number of words in a sentence."""


def main() -> int:
    """Print the findings; return the exit code."""
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
        print(f"{TABLE.relative_to(ROOT)}: these have no retired word, and --prune removes them: {', '.join(clean)}")
    print(long_sentences(list(found)))
    return int(any(checked.values()) or bool(clean and not given.prune))


def files(paths: list[str]) -> list[str]:
    """Return the files of the repository to check."""
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    named = (path for path in listed.stdout.splitlines() if path not in OURS and not RECORDED.match(path))
    return [path for path in named if (ROOT / path).is_file()]


def retired(path: str, rules: list[tuple[re.Pattern[str], str]], allowed: list[str]) -> Iterator[str]:
    """Return a line for each retired word of a file."""
    for number, line in prose(path):
        line = re.sub(r"(?<!`)`[^`]+`(?!`)", "", line)  # names
        for text in allowed:
            line = line.replace(text, "")
        for pattern, instead in rules:
            yield from (f"{path}:{number}: {hit[0]}: write {instead}" for hit in pattern.finditer(line))


def prose(path: str) -> Iterator[tuple[int, str]]:
    """Return number and text of each line that a person reads."""
    try:
        text = (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    suffix = Path(path).suffix
    if suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in STRINGS and " " in token.string:  # a string of one word is a name
                yield from enumerate(token.string.splitlines(), token.start[0])
    elif suffix == ".md":
        yield from enumerate(without_code(text).splitlines(), 1)
    elif suffix == ".ipynb":
        cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
        yield from ((number, line) for number, cell in enumerate(cells, 1) for line in cell["source"])
    elif suffix in COMMENTED or Path(path).name == "Makefile":
        mark = "--" if suffix == ".lua" else "#"
        yield from ((n, line.partition(mark)[2]) for n, line in enumerate(text.splitlines(), 1) if mark in line)


def without_code(text: str) -> str:
    """Return Markdown line by line, with empty lines in place of code blocks."""
    return re.sub(r"^( *)```.*?^\1```", lambda hit: "\n" * hit[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)


def long_sentences(paths: list[str]) -> str:
    """Return how many Markdown sentences are long, and where the longest one is."""
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
