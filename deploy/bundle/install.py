"""Install cpsched from this bundle, without a network, into a virtual environment of its own.

python3 install.py FOLDER

FOLDER (/opt/cpsched on most hosts) is made, or it is an environment that an earlier bundle was installed into. Before
anything is written, the host is held against what the bundle is for, and each file against its checksum. The exit code
is 1, with one line of why, where one of them does not fit.
"""

# An older Python must get as far as its error message: nothing here is newer than Python 3.6.

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

BUNDLE = Path(__file__).resolve().parent


def unfit(needs):
    """Why this host is not what the bundle is for; None if it is."""
    python, glibc = tuple(needs["python"]), tuple(needs["glibc"])
    here = platform.python_implementation(), sys.version_info[:2], platform.system(), platform.machine()
    if here != ("CPython", python, "Linux", needs["machine"]):
        there = f"{here[0]} {dotted(here[1])} on {here[2]} {here[3]}"
        return f"this is {there}: must be CPython {dotted(python)} on Linux {needs['machine']}, or another bundle"
    library, version = platform.libc_ver()
    if library != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < glibc:
        return f"this host has {library or 'another C library'} {version}: must be glibc {dotted(glibc)} or newer"
    return None


def dotted(numbers):
    """(3, 11) as 3.11."""
    return ".".join(str(number) for number in numbers)


def damaged(bundle):
    """The first file that is not as it was made, and why; None if all are."""
    for line in (bundle / "SHA256SUMS").read_text().splitlines():
        expected, _, name = line.partition("  ")
        path = bundle / name
        if not path.is_file():
            return f"{name}: is not there"
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            return f"{name}: has another checksum than SHA256SUMS says"
    return None


def taken(folder):
    """Why the environment cannot be made in this folder; None if it can."""
    settings = folder / "pyvenv.cfg"
    if settings.is_file():
        lines = [line.partition("=") for line in settings.read_text().splitlines()]
        version = {name.strip(): value.strip() for name, _, value in lines}.get("version", "")
        if tuple(version.split(".")[:2]) != tuple(str(number) for number in sys.version_info[:2]):
            return f"{folder}: is an environment of Python {version}: must be removed first, or name another folder"
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        return f"{folder}: must be a new folder, or an environment that cpsched was installed into"
    return None


def install(folder, version):
    """Make the environment and put the wheels in; the exit code of what fails, which has said why."""
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    quiet["PIP_CONFIG_FILE"] = os.devnull  # a host's index, or its ban on installing, is not meant
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-index"]
    wheels = ["--find-links", str(BUNDLE / "wheels"), f"cpsched=={version}"]
    steps = [[sys.executable, "-m", "venv", str(folder)], pip + wheels]  # venv: also what broke off an earlier time
    if (folder / "bin" / "cpsched").exists():
        steps.append([*pip, "--no-deps", "--force-reinstall", *wheels])  # it may be another build of the same version
    for step in steps:
        code = subprocess.call(step, env=quiet)
        if code:
            return code
    return 0


def main(arguments):
    """Check, then install."""
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
        print(f"install.py: {folder}: not installed, the reason is above", file=sys.stderr)
        return 1
    print(f"cpsched {needs['version']} is installed: {folder}/bin/cpsched")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
