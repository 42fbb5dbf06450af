"""Compute the version of this source tree. It increases with every commit, so newer wheels replace older ones.

- The commit tagged `v0.1.0`, or any commit if `CPSCHED_RELEASE` is 0.1.0 (`make release`, before the tag): 0.1.0.
- Any other commit: 0.1.0.dev20261125134501+g0123abcd, the commit's time in UTC and its hash.
- A source distribution: the version recorded in it.
- A copy of the tree without git: 0.1.0.dev0+tree.0123abcd4567, with a digest of the packages. These versions are not
  ordered.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASE = "0.1.0"
"""The newest release, or the next one until it is tagged. Also stated in CHANGELOG.md and CITATION.cff."""
PACKAGES = ("cpsched", "sim/cpsched_sim", "bridge/cpsched_bridge")


def version(root: Path = ROOT) -> str:
    """Return the version of the source tree at `root`."""
    if (made := root / "PKG-INFO").is_file():
        return re.findall(r"^Version: (\S+)$", made.read_text(), re.MULTILINE)[0]
    if os.environ.get("CPSCHED_RELEASE") == RELEASE:
        return RELEASE
    if (root / ".git").exists() and (found := _of_commit(root)):
        return found
    digest = hashlib.sha256()
    for path in sorted(path for each in PACKAGES for path in (root / each).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{RELEASE}.dev0+tree.{digest.hexdigest()[:12]}"


def _of_commit(root: Path) -> str:
    """Return the version of the current commit, or "" if git is missing or fails."""
    git = "git", "-C", str(root)
    form = ("--date=format-local:%Y%m%d%H%M%S", "--format=%cd %h %D", "--abbrev=8", "--decorate=short")
    try:
        said = subprocess.run(
            [*git, "log", "-1", *form], env={**os.environ, "TZ": "UTC"}, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    moment, commit, tags = (said.stdout.strip() + "  ").split(" ", 2)
    return RELEASE if f"tag: v{RELEASE}" in tags.strip().split(", ") else f"{RELEASE}.dev{moment}+g{commit}"
