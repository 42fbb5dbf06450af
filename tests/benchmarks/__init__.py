"""Benchmarks of speed and memory. The results are printed with reference values. Nothing is asserted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import pytest


def run_parts(module: str, parts: Mapping[str, Callable[[], object]], words: Sequence[str]) -> None:
    """Run the named parts of a benchmark, by default all, each in its own process."""
    for word in words:
        try:
            parts[word]()
        except pytest.skip.Exception as absent:
            print(f"{word}: skipped: {absent}")
    for word in parts if not words else ():
        subprocess.run([sys.executable, "-m", module, word], check=True)
