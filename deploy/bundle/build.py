"""Build a bundle: the wheels of cpsched and its run-time dependencies in one archive, for hosts without a network.

python3 deploy/bundle/build.py OUT [--only wheels | folder] [--wheel FILE]

The bundle is for the Python version that runs this program and for this machine's architecture. It is written to OUT:

- `NAME/`: the wheels, `install.py`, `README.md`, `bundle.json` with the host's requirements, and `SHA256SUMS`;
- `NAME.tar.gz` and `NAME.tar.gz.sha256`: the same in one file. Identical wheels give byte-identical archives.

NAME contains the versions of cpsched and Python and the platform, such as cpsched-0.1.0-cp311-manylinux_2_28_x86_64.
pip downloads the wheels from its configured index. `--wheel FILE` is cpsched's own wheel, which is built by default.

`--only wheels` only downloads the dependencies. `--only folder` continues from there without a network, and does not
write an archive. A container image can then contain the dependencies in a separate layer.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OLD_NAMES = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
"""The glibc version of each platform tag older than PEP 600. These tags do not contain the version."""
MADE_AT_S = 1580601600
"""Modification time of every archive member: 2 February 2020, as in hatchling's wheels."""


class Wrong(Exception):
    """An error that prevents building the bundle, as one line of text."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The bundle's requirements on a host."""

    version: str
    """The version of cpsched."""
    python: tuple[int, int]
    machine: str
    """The architecture, as returned by `platform.machine()`."""
    glibc: tuple[int, int]
    """The oldest glibc version that all wheels support."""

    @property
    def name(self) -> str:
        """The name of the folder and the archive."""
        (major, minor), (libc, release) = self.python, self.glibc
        return f"cpsched-{self.version}-cp{major}{minor}-manylinux_{libc}_{release}_{self.machine}"

    @property
    def words(self) -> str:
        """The requirements as text."""
        python, glibc = (".".join(map(str, each)) for each in (self.python, self.glibc))
        return f"CPython {python} on Linux {self.machine} with glibc {glibc} or newer"


def platform_of(wheel: str) -> tuple[str, tuple[int, int]] | None:
    """Return a wheel's architecture and oldest glibc, by its tags; None means any. Raise `Wrong` for other wheels."""
    found = []
    for tag in wheel.removesuffix(".whl").split("-")[-1].split("."):
        if tag == "any":
            return None
        if match := re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag):
            found.append((match[3], (int(match[1]), int(match[2]))))
        elif (old := tag.partition("_"))[0] in OLD_NAMES:
            found.append((old[2], OLD_NAMES[old[0]]))
    if not found:
        raise Wrong(f"{wheel}: must be a manylinux wheel, which other hosts can install")
    return min(found, key=lambda each: each[1])


def needs_of(version: str, python: tuple[int, int], wheels: Iterable[str]) -> Needs:
    """Return the combined requirements of all wheels. Raise `Wrong` unless they are for exactly one architecture."""
    platforms = [found for wheel in wheels if (found := platform_of(wheel))]
    machines = {machine for machine, _ in platforms}
    if len(machines) != 1:
        raise Wrong(f"wheels={sorted(machines)}: must be for exactly one architecture")
    return Needs(version, python, machines.pop(), max(glibc for _, glibc in platforms))


def pip(environment: Path, *words: str | Path) -> None:
    """Run the environment's pip. If it fails, raise `Wrong` with the last line of its output."""
    command = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise Wrong(f"pip {words[0]}: exit code {done.returncode}: {said}")


def project() -> tuple[list[str], list[str]]:
    """Return the run-time dependencies and the build dependencies."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return content["project"]["dependencies"], content["build-system"]["requires"]


def fetch(out: Path) -> None:
    """Download the dependencies' wheels to `OUT/wheels`, and create the build environment in `OUT/env`."""
    dependencies, builds_with = project()
    shutil.rmtree(out / "wheels", ignore_errors=True)
    venv.create(out / "env", with_pip=True, clear=True)
    pip(out / "env", "install", "--quiet", *builds_with)
    pip(out / "env", "download", "--quiet", "--only-binary=:all:", "--dest", out / "wheels", *dependencies)


def folder_of(out: Path, own: Path | None = None) -> tuple[Needs, Path]:
    """Write the bundle's folder from `OUT/wheels` and the project's own wheel, which is built by default."""
    if own is None:
        shutil.rmtree(out / "own", ignore_errors=True)
        pip(out / "env", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out / "own", ROOT)
        (own,) = (out / "own").glob("cpsched-*.whl")
    wheels = [*sorted((out / "wheels").glob("*.whl")), own]
    needs = needs_of(own.name.split("-")[1], sys.version_info[:2], [each.name for each in wheels])
    folder = out / needs.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "wheels").mkdir(parents=True)
    for each in wheels:
        shutil.copyfile(each, folder / "wheels" / each.name)
    shutil.copyfile(HERE / "install.py", folder / "install.py")
    (folder / "bundle.json").write_text(json.dumps(asdict(needs), indent=1) + "\n")
    (folder / "README.md").write_text(readme(needs, [each.name for each in wheels]))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    (folder / "SHA256SUMS").write_text("".join(sum_line(path, path.relative_to(folder)) for path in files))
    return needs, folder


def readme(needs: Needs, wheels: Iterable[str]) -> str:
    """Return the README: the bundle's platform, how to install it, and its contents."""
    rows = "\n".join("| {} | {} |".format(*each.split("-")[:2]) for each in sorted(wheels))
    python = ".".join(map(str, needs.python))
    return f"""# cpsched {needs.version}, with all dependencies

For {needs.words}. The installation needs no network.

    sha256sum --check SHA256SUMS
    python{python} install.py /opt/cpsched

`install.py` reports if the host has a different Python or platform. It creates a virtual environment (Debian: package
`python3-venv`) and runs these commands, which can also be run by hand:

    python{python} -m venv /opt/cpsched
    /opt/cpsched/bin/pip install --no-index --find-links wheels cpsched=={needs.version}

Then `/opt/cpsched/bin/cpsched deploy-files DIR` writes the administrator's pages, INSTALL.md first, and the files to
install.

| package | version |
|---|---|
{rows}
"""


def sum_line(path: Path, name: Path) -> str:
    """Return a checksum line in the format of `sha256sum`."""
    with path.open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n"


def archived(folder: Path) -> Path:
    """Write the folder's archive next to it, and the archive's checksum to a separate file."""
    archive = folder.with_name(f"{folder.name}.tar.gz")
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 1, raw, 0) as packed,  # wheels are compressed already
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            tar.add(path, f"{folder.name}/{path.relative_to(folder)}", recursive=False, filter=anonymous)
    archive.with_name(f"{archive.name}.sha256").write_text(sum_line(archive, Path(archive.name)))
    return archive


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an archive member without the builder's user, time and umask."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = MADE_AT_S
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def main(arguments: list[str] | None = None) -> int:
    """Build the bundle and return 0, or print an error and return 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to build in")
    parser.add_argument("--only", choices=("wheels", "folder"), help="run only this step, and do not write an archive")
    parser.add_argument("--wheel", type=Path, help="cpsched's own wheel; default: build it")
    chosen = parser.parse_args(arguments)
    out = chosen.out.resolve()
    try:
        if chosen.only != "folder":
            fetch(out)
        if chosen.only != "wheels":
            needs, folder = folder_of(out, chosen.wheel)
            made = archived(folder) if chosen.only is None else folder
            print(f"{made}: for {needs.words}")
    except Wrong as wrong:
        print(f"bundle: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
