"""Print the run-time and build dependencies of a pyproject.toml, one requirement a line."""

import sys
import tomllib
from pathlib import Path

path = Path(sys.argv[1])
if path.exists():
    content = tomllib.loads(path.read_text())
    for requirement in content["project"].get("dependencies", []) + content.get("build-system", {}).get("requires", []):
        print(requirement)
