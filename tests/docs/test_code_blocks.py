"""Run the code blocks in README and on the site, page by page, from top to bottom.

- `python` blocks of a page share their names, as in a notebook.
- `bash` blocks of a page run in one folder, which is empty at first; `cpsched` is the working tree's: a new process
  in those of README.md, one forked by `tests.warm` in those of the site.
- `yaml` blocks must be YAML; those that begin with `# bridge.yaml` must be legal settings.
- `text` blocks are output or drawings; no other language is allowed.

A page that works on files has them in a folder of its name in `tests/docs/files`: they are there when it begins.

A block that cannot run in a test says why in a comment before it: `<!-- skip: next "needs a cluster" -->`.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import pytest
import yaml
from sybil import Document
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from cpsched_bridge.settings import Settings, validate_section_content
from tests import warm

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = Path(__file__).with_name("files")
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LONG = {"docs/dispatchers.md", "docs/experiments.md", "docs/lookahead.md"}
"""Pages with many replays."""


def run_bash(example):
    """The block as a script that stops at the first error."""
    script = ["bash", "-euo", "pipefail", "-c", str(example.parsed)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{example.path}:{example.line}\n{example.parsed}\n{done.stdout}{done.stderr}"


def check_yaml(example):
    """YAML, and settings where the block says so."""
    content = yaml.safe_load(example.parsed)
    if str(example.parsed).startswith("# bridge.yaml"):
        validate_section_content(Settings, content, f"{example.path}:{example.line}")


@pytest.fixture
def workshop(page, tmp_path, monkeypatch):
    """An empty folder to work in, which Python can import from; `cpsched` on the PATH."""
    program, work = tmp_path / "bin" / "cpsched", tmp_path / "work"
    program.parent.mkdir()
    run = "-m cpsched_bridge.program.cli" if page.name == "README.md" else f'-IS "{warm.__file__}" "{warm.server()}"'
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {run} "$@"\n')
    program.chmod(0o755)
    work.mkdir()
    packages = [str(folder) for folder in (ROOT, ROOT / "sim", ROOT / "bridge", work)]
    monkeypatch.setenv(
        "PATH", os.pathsep.join((str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(packages))
    monkeypatch.syspath_prepend(str(work))
    monkeypatch.chdir(work)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if name in LONG else (), id=name)
        for page, name in zip(PAGES, NAMES, strict=True)
    ],
)
def test_code_blocks_run(page, workshop):
    if (FILES / page.stem).is_dir():
        shutil.copytree(FILES / page.stem, ".", dirs_exist_ok=True)
    blocks = CodeBlockParser("bash", run_bash), CodeBlockParser("yaml", check_yaml), PythonCodeBlockParser()
    for example in Document.parse(str(page), SkipParser(), *blocks):
        with contextlib.suppress(unittest.SkipTest):
            example.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_block_has_language_and_every_skip_reason(page):
    text = page.read_text()
    lexer = FencedCodeBlockLexer(".*", {"language": "language", "source": "source"})
    languages = {region.lexemes["language"] for region in lexer(Document(text, str(page)))}
    assert languages <= {"python", "bash", "yaml", "text"}
    for directive in re.findall(r"<!--\s*skip:(.*?)-->", text):
        assert re.fullmatch(r' next "[^"]{10,}" ', directive), directive
