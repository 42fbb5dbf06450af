"""A stand-in for scontrol that reads commands and, like the real program, rejects unknown words."""

from __future__ import annotations

import shlex
from pathlib import Path


def put_scontrol(folder: Path, each: str = ":") -> Path:
    """Put it into a folder; the file in which it writes down its commands. `each`: shell for each of them, in $line."""
    said = folder / "said"
    script = folder / "scontrol"
    script.write_text(
        "#!/bin/sh\n"
        "while read -r line; do\n"
        "case $line in\n"
        f'update\\ *|hold\\ *|release\\ *|requeue\\ *|create\\ *|delete\\ *) echo "$line" >>{said}\n{each}\n;;\n'
        '*) echo "invalid keyword: $line" >&2;;\n'
        "esac\n"
        "done\n"
        "exit 1\n"
    )
    script.chmod(0o755)
    return said


def put_scancel(folder: Path, then: str = ":") -> Path:
    """Put scancel into a folder; the file in which it writes down its arguments."""
    said, script = folder / "cancelled", folder / "scancel"
    script.write_text(f'#!/bin/sh\necho "$*" >>{said}\n{then}\n')
    script.chmod(0o755)
    return said


def complaining(words: str) -> str:
    """Shell with which it complains of each command."""
    return f"echo {shlex.quote(words)} >&2"
