"""Install cpsched from this bundle, without a network, into its own virtual environment.

python3 install.py FOLDER

FOLDER (/opt/cpsched on most hosts) is created, unless it is an environment from an earlier bundle. Before anything is
written, the host is checked against the bundle's requirements, and each file against its checksum. If a check fails,
the reason is printed and the exit code is 1.
"""

# Use no syntax newer than Python 3.6, so that an older Python prints the error message.

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

BUNDLE = Path(__file__).resolve().parent


def unfit(needs):
    """Return why this host does not meet the bundle's requirements, or None if it does."""
    python, glibc = tuple(needs["python"]), tuple(needs["glibc"])
    here = platform.python_implementation(), sys.version_info[:2], platform.system(), platform.machine()
    if here != ("CPython", python, "Linux", needs["machine"]):
        there = f"{here[0]} {dotted(here[1])} on {here[2]} {here[3]}"
        return f"host={there}: must be CPython {dotted(python)} on Linux {needs['machine']}; use another bundle"
    library, version = platform.libc_ver()
    if library != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < glibc:
        return f"C library={library or 'unknown'} {version}: must be glibc {dotted(glibc)} or newer"
    return None


def dotted(numbers):
    """Return version numbers as text: (3, 11) becomes "3.11"."""
    return ".".join(str(number) for number in numbers)


def damaged(bundle):
    """Return the first damaged or missing file and the problem, or None if all files are intact."""
    for line in (bundle / "SHA256SUMS").read_text().splitlines():
        expected, _, name = line.partition("  ")
        path = bundle / name
        if not path.is_file():
            return f"{name}: is missing"
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            return f"{name}: its checksum differs from that in SHA256SUMS"
    return None


def taken(folder):
    """Return why the environment cannot be created in this folder, or None if it can."""
    settings = folder / "pyvenv.cfg"
    if settings.is_file():
        lines = [line.partition("=") for line in settings.read_text().splitlines()]
        version = {name.strip(): value.strip() for name, _, value in lines}.get("version", "")
        if tuple(version.split(".")[:2]) != tuple(str(number) for number in sys.version_info[:2]):
            return f"{folder}: contains an environment for Python {version}; remove it or choose another folder"
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        return f"{folder}: must be a new folder or an environment that contains cpsched"
    return None


def install(folder, version):
    """Create the environment and install the wheels. Return 0, or the exit code of the step that failed."""
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    quiet["PIP_CONFIG_FILE"] = os.devnull  # ignore the host's package index and its ban on pip
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-index"]
    wheels = ["--find-links", str(BUNDLE / "wheels"), f"cpsched=={version}"]
    steps = [[sys.executable, "-m", "venv", str(folder)], pip + wheels]  # venv also repairs an interrupted installation
    if (folder / "bin" / "cpsched").exists():
        steps.append(
            [*pip, "--no-deps", "--force-reinstall", *wheels]
        )  # the installed wheel may be a different build of the same version
    for step in steps:
        code = subprocess.call(step, env=quiet)
        if code:
            return code
    return 0


def main(arguments):
    """Check the host and the bundle, then install."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    needs = json.loads((BUNDLE / "bundle.json").read_text())
    folder = Path(arguments[0]).absolute()
    wrong = unfit(needs) or damaged(BUNDLE) or taken(folder)
    if wrong:
        print(f"install.py: {wrong}", file=sys.stderr)
        return 1
    if install(folder, needs["version"]):
        print(f"install.py: {folder}: not installed; see the error above", file=sys.stderr)
        return 1
    print(f"cpsched {needs['version']} is installed: {folder}/bin/cpsched")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
