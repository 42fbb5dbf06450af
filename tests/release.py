"""Check a release: contents of wheel, sdist and bundle, and that they install and run on every Python.

python -m tests.release [PYTHON ...]

Default: those of Python 3.11 to 3.14 that are on the PATH, among pyenv's, or in an image of the test cluster
(cpsched/bundle, made by `deploy/cluster build`: Python 3.14 with Slurm 26.05, 3.13 with 24.11, 3.11 with 22.05);
missing ones are reported. Wheels of dependencies come from uv's cache, or else from the package index; in an image,
from its bundle. The bundle is made for the running Python and installed without a network. The exit code is 0 if all
tried checks pass and at least one Python was found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from deploy.version import RELEASE

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "release"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TRACE = "; MaxProcs: 4\n" + "".join(f"{i} {9 * i} -1 60 2 -1 -1 2 90 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1, 9))
IN_SDIST = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "pyproject.toml",
    "cpsched",
    "sim",
    "bridge",
    "deploy",
    "docs",
    "tests",
)
NOT_IN_SDIST = ("studies", "docs/pictures")


class Wrong(Exception):
    """An error in the release, as one line."""


def run(*command: str | Path, cwd: Path = OUT) -> str:
    """Return the output of a command; raise `Wrong` with its last line if it fails."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CPSCHED_", "NUMBA_"))}
    own |= {name: os.environ[name] for name in ("CPSCHED_RELEASE",) if name in os.environ}  # the version to build
    done = subprocess.run([*map(str, command)], cwd=cwd, env=own, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise Wrong(f"{' '.join(map(str, command))}: exit code {done.returncode}: {said}")
    return done.stdout


def beside(program: str) -> Path:
    """Return the path of a program in this environment."""
    return Path(sys.executable).with_name(program)


def release() -> str:
    """Return the release in `deploy/version.py`; raise `Wrong` if changelog or citation differ."""
    found = RELEASE
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    if not headings or headings[0].split()[1] != found:
        raise Wrong(f"CHANGELOG.md: begins with {headings[0] if headings else 'nothing'!r}: must be ## {found}")
    if f"version: {found}" not in (ROOT / "CITATION.cff").read_text().splitlines():
        raise Wrong(f"CITATION.cff: version: must be {found}")
    return found


def built() -> Path:
    """Build and check wheel and sdist; return the wheel."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    run(sys.executable, "-m", "hatchling", "build", "-d", OUT, cwd=ROOT)
    (wheel,), (sdist,) = OUT.glob("*.whl"), OUT.glob("*.tar.gz")
    run(beside("twine"), "check", "--strict", wheel, sdist)
    run(beside("check-wheel-contents"), "--config", ROOT / "pyproject.toml", wheel)
    if not any(name.endswith("share/man/man1/cpsched.1") for name in zipfile.ZipFile(wheel).namelist()):
        raise Wrong(f"{wheel.name}: lacks the manual pages")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    lacking = [each for each in IN_SDIST if not any(n.split("/")[1:2] == [each] for n in names)]
    made = [name for name in names if name.endswith((".pyc", ".bin", ".sqlite"))]
    made += [name for name in names if name.partition("/")[2].startswith(NOT_IN_SDIST)]
    if lacking or made:
        raise Wrong(f"{sdist.name}: lacks {lacking}, holds {made[:3]}")
    return wheel


def interpreter(name: str) -> Path | None:
    """Return a working Python of that version, or the one given by an argument."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for each in (shutil.which(f"python{name}"), *sorted(home.glob(f"versions/{name}.*/bin/python"))):
        if each and subprocess.run([each, "--version"], capture_output=True, check=False).returncode == 0:
            return Path(each)
    return None


def image(name: str) -> str | None:
    """Return an image with that Python and the wheels of the dependencies, or None."""
    if shutil.which("docker") is None:
        return None
    listed = subprocess.run(
        ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "cpsched/bundle"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    for each in sorted(listed.stdout.split()):
        if run(*inside(each), "python3", "--version", cwd=ROOT).startswith(f"Python {name}."):
            return each
    return None


def inside(image: str) -> tuple[str, ...]:
    """Return the command prefix for a container: no network, this build folder, the caller's user."""
    user = f"--user={os.getuid()}:{os.getgid()}"
    return "docker", "run", "--rm", "--network=none", user, "--env=HOME=/tmp", f"--volume={OUT}:{OUT}", image


def installs_and_runs(python: Path, wheel: Path, expected: str) -> None:
    """Check `works` in a new environment with the wheel."""
    home = OUT / f"on-{python.parent.parent.name}-{python.name}"
    run(beside("uv"), "venv", "--quiet", "--python", python, home)
    install = beside("uv"), "pip", "install", "--quiet", "--python", home / "bin" / "python"
    try:
        run(*install, "--offline", wheel)
    except Wrong:
        run(*install, wheel)
    works(home, expected)


def installs_and_runs_in(image: str, wheel: Path, expected: str) -> None:
    """Check the same in a container without a network, with the image's wheels."""
    home = OUT / f"in-{image.rpartition(':')[2]}"
    before = inside(image)
    run(*before, "python3", "-m", "venv", home)
    pip = *before, home / "bin" / "pip", "--quiet", "--no-cache-dir"
    run(*pip, "install", "--no-index", "--find-links", "/opt/bundle/wheels", wheel)
    works(home, expected, *before)


def bundle_installs_and_runs(wheel: Path, expected: str) -> str:
    """Check `works` for an unpacked archive installed without a network; return the archive's name."""
    run(sys.executable, ROOT / "deploy" / "bundle" / "build.py", OUT / "bundle", "--wheel", wheel)
    (archive,) = (OUT / "bundle").glob("*.tar.gz")
    run("sha256sum", "--check", f"{archive.name}.sha256", cwd=archive.parent)
    unpacked = OUT / "unpacked"
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    run("sha256sum", "--check", "SHA256SUMS", cwd=folder)
    run("unshare", "--user", "--map-root-user", "--net", sys.executable, folder / "install.py", OUT / "from-bundle")
    works(OUT / "from-bundle", expected)
    return archive.name


def works(home: Path, expected: str, *before: str) -> None:
    """Check that an environment's program prints version and help, and replays a few jobs."""
    cpsched = *before, home / "bin" / "cpsched"
    if (said := run(*cpsched, "--version")) != f"cpsched {expected}\n":
        raise Wrong(f"{home}: cpsched --version: {said!r}: must be cpsched {expected}")
    run(*cpsched, "demo", "--help")
    trace = home / "few.swf"
    trace.write_text(TRACE)
    if '"jobs": 8' not in run(*cpsched, "simulate", trace, "--json"):
        raise Wrong(f"{home}: cpsched simulate: did not replay all 8 jobs")


def main(arguments: list[str]) -> int:
    """Check everything; return 0, or print one line and return 1."""
    try:
        release()
        wheel = built()
        expected = wheel.name.split("-")[1]
        print(f"{wheel.name} and its sdist: contents and metadata are well", flush=True)
        tried = 0
        for name in arguments or PYTHONS:
            if python := Path(name) if "/" in name else interpreter(name):
                installs_and_runs(python, wheel, expected)
                place = ""
            elif container := image(name):
                installs_and_runs_in(container, wheel, expected)
                place = f" in a container of {container}"
            else:
                print(f"Python {name}: not tried, there is none here", flush=True)
                continue
            tried += 1
            print(f"Python {name}: installs and runs{place}", flush=True)
        if not tried:
            raise Wrong("no Python was found to install it on")
        print(f"{bundle_installs_and_runs(wheel, expected)}: installs without a network, and runs", flush=True)
    except Wrong as wrong:
        print(f"release-check: {wrong}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
