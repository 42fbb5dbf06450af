"""Make a release: check the tree, build everything, and print the two commands that publish it.

python -m deploy.release VERSION

The files are written to build/dist: sdist, wheel, bundle, deb, rpm, an SBOM in CycloneDX's format, and SHA256SUMS. The
packages need a Docker engine. The release is not tagged before everything is built and checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.version import RELEASE, ROOT

BUILD = ROOT / "build"
"""`tests.release` builds wheel, sdist and bundle in `release`, and `deploy/packaging/build` the packages."""
OUT = BUILD / "dist"


def find_obstacles(version: str) -> list[str]:
    """Return why this tree cannot become the release, one line for each reason."""
    obstacles = []
    if version != RELEASE:
        obstacles.append(f"VERSION={version}: must be {RELEASE}, the release in deploy/version.py")
    heading = next((line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")), "")
    if not re.fullmatch(rf"## {re.escape(RELEASE)} \(\d{{4}}-\d\d-\d\d\)", heading):
        obstacles.append(f"CHANGELOG.md: begins with {heading!r}: must be ## {RELEASE} (YYYY-MM-DD)")
    if changed := _git("status", "--porcelain"):
        obstacles.append(f"{len(changed.splitlines())} files are not committed, the first is {changed.split()[1]}")
    return obstacles


def build() -> None:
    """Build and check everything, and collect the files in `OUT`."""
    environment = {**os.environ, "CPSCHED_RELEASE": RELEASE}
    subprocess.run([sys.executable, "-m", "tests.release"], cwd=ROOT, env=environment, check=True)
    (wheel,) = BUILD.glob("release/*.whl")
    subprocess.run([ROOT / "deploy" / "packaging" / "build", "packages", wheel], cwd=ROOT, env=environment, check=True)

    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for pattern in ("release/*.whl", "release/*.tar.gz", "release/bundle/*.tar.gz", "packages/*.deb", "packages/*.rpm"):
        (path,) = BUILD.glob(pattern)
        shutil.copyfile(path, OUT / path.name)
    _write_sbom(OUT / f"cpsched-{RELEASE}.cdx.json")

    names = sorted(path.name for path in OUT.iterdir())
    checksums = subprocess.run(["sha256sum", *names], cwd=OUT, capture_output=True, text=True, check=True).stdout
    (OUT / "SHA256SUMS").write_text(checksums)
    print(checksums, end="")


def _write_sbom(path: Path) -> None:
    """Write the bill of materials of the environment into which `tests.release` installed the bundle."""
    program = Path(sys.executable).with_name("cyclonedx-py")
    python = BUILD / "release" / "from-bundle" / "bin" / "python"
    command = [program, "environment", "--output-reproducible", "--of", "JSON", "--output-file", path, python]
    subprocess.run(command, cwd=ROOT, check=True)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    """Make the release and return 0, or print the obstacles and return 1."""
    if len(arguments) != 1:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    if obstacles := find_obstacles(arguments[0]):
        print("\n".join(f"release: {obstacle}" for obstacle in obstacles), file=sys.stderr)
        return 1
    build()
    print("Everything is in build/dist. To publish it:")
    tag, commit = f"v{RELEASE}", _git("rev-parse", "HEAD")
    print(f"git tag --sign --message 'cpsched {RELEASE}' {tag} {commit} && git push origin {tag}")
    print(f"twine upload build/dist/cpsched-{RELEASE}.tar.gz build/dist/cpsched-{RELEASE}-*.whl")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
