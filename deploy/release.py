"""Make a release: check the tree, build everything, and print the two commands that publish it.

python -m deploy.release VERSION

The files are written to build/dist: sdist, wheel, bundle, deb, rpm, an SBOM in CycloneDX's format, and SHA256SUMS. The
packages need a Docker engine. The release is not tagged before everything is built and checked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

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
    if not _docker_responds():
        obstacles.append("no Docker engine responds, which the packages need")
    return obstacles


def build() -> None:
    """Build and check everything, and collect the files in `OUT`."""
    shutil.rmtree(OUT, ignore_errors=True)  # a release that fails leaves no files of an earlier one
    environment = {**os.environ, "CPSCHED_RELEASE": RELEASE}
    subprocess.run([sys.executable, "-m", "tests.release"], cwd=ROOT, env=environment, check=True)
    (wheel,) = BUILD.glob("release/*.whl")
    subprocess.run([ROOT / "deploy" / "packaging" / "build", "packages", wheel], cwd=ROOT, env=environment, check=True)
    subprocess.run([ROOT / "tests" / "packages" / "run"], cwd=ROOT, check=True)

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
    """Write the bill of materials: the bundle's environment, and what deb and rpm contain of Debian's Python."""
    program = str(Path(sys.executable).with_name("cyclonedx-py"))
    python = str(BUILD / "release" / "from-bundle" / "bin" / "python")
    command = [program, "environment", "--output-reproducible", "--of", "JSON", "--output-file", str(path), python]
    subprocess.run(command, cwd=ROOT, check=True)

    bill = json.loads(path.read_text())
    query = ["dpkg-query", "--show", "--showformat", r"${Package} ${Version}\n", "python3.[0-9][0-9]", "libbz2-1.0"]
    container = ["docker", "run", "--rm", "--network=none", "cpsched/package-python"]
    output = subprocess.run([*container, *query], capture_output=True, text=True, check=True).stdout
    for name, version in map(str.split, output.splitlines()):
        purl = f"pkg:deb/debian/{name}@{quote(version)}?arch=amd64&distro=debian-12"
        bill["components"].append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    path.write_text(json.dumps(bill, indent=2) + "\n")


def _docker_responds() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


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
    try:
        build()
    except subprocess.CalledProcessError as error:
        print(f"release: {' '.join(map(str, error.cmd))}: exit code {error.returncode}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("release: interrupted, and build/dist is not complete", file=sys.stderr)
        return 130
    print("Everything is in build/dist. To publish it:")
    tag, commit = f"v{RELEASE}", _git("rev-parse", "HEAD")
    print(f"git tag --sign --message 'cpsched {RELEASE}' {tag} {commit} && git push origin {tag}")
    print(f"twine upload build/dist/cpsched-{RELEASE}.tar.gz build/dist/cpsched-{RELEASE}-*.whl")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
