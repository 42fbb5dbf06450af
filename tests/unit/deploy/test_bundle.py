"""The bundle for hosts without a network: its stated requirements, and the checks of its `install.py`."""

import json
import os
import platform
import re
import sys

import pytest

from deploy.bundle import build, install

WHEELS = (
    "numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "protobuf-6.33.6-cp39-abi3-manylinux2014_x86_64.whl",
    "rich-15.0.0-py3-none-any.whl",
)


@pytest.mark.parametrize(
    ("wheel", "platform"),
    [
        (WHEELS[0], ("x86_64", (2, 27))),
        (WHEELS[1], ("x86_64", (2, 17))),
        (WHEELS[2], None),
        ("a-1-cp311-cp311-manylinux_2_5_i686.manylinux1_i686.whl", ("i686", (2, 5))),
        ("a-1-cp311-cp311-manylinux_2_9_aarch64.manylinux_2_31_aarch64.whl", ("aarch64", (2, 9))),
    ],
)
def test_oldest_glibc_of_wheel_counts(wheel, platform):
    assert build.platform_of(wheel) == platform


@pytest.mark.parametrize("tag", ["linux_x86_64", "musllinux_1_2_x86_64", "macosx_11_0_arm64"])
def test_rejects_wheel_that_is_not_portable(tag):
    with pytest.raises(build.Wrong, match=rf"a-1-cp311-cp311-{tag}.whl: must be a manylinux wheel"):
        build.platform_of(f"a-1-cp311-cp311-{tag}.whl")


def test_host_requirement_is_strictest_of_wheels():
    needs = build.needs_of("0.1.0", (3, 11), WHEELS)
    assert needs == build.Needs("0.1.0", (3, 11), "x86_64", (2, 27))
    assert needs.name == "cpsched-0.1.0-cp311-manylinux_2_27_x86_64"
    assert needs.words == "CPython 3.11 on Linux x86_64 with glibc 2.27 or newer"


@pytest.mark.parametrize(
    ("wheels", "machines"),
    [([*WHEELS, "a-1-cp311-cp311-manylinux_2_28_aarch64.whl"], "'aarch64', 'x86_64'"), (WHEELS[2:], "")],
)
def test_rejects_wheels_of_two_machines_or_none(wheels, machines):
    with pytest.raises(build.Wrong, match=rf"\[{machines}\]: must be for exactly one architecture"):
        build.needs_of("0.1.0", (3, 11), wheels)


def made(out):
    """A bundle of wheels that hold nothing; the folder and the archive."""
    (out / "wheels").mkdir(parents=True)
    for name in WHEELS:
        (out / "wheels" / name).write_text(name)
    own = out / "cpsched-0.1.0-py3-none-any.whl"
    own.write_text("ours")
    _, folder = build.folder_of(out, own)
    return folder, build.archived(folder)


HERE = {"python": sys.version_info[:2], "machine": platform.machine(), "glibc": (2, 5)}


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({}, "^None$"),
        ({"python": [3, 9]}, r"host=CPython {here} on Linux \S+: must be CPython 3\.9 on Linux \S+; use another"),
        ({"machine": "ppc64le"}, r"on Linux {machine}: must be CPython {here} on Linux ppc64le; use another bundle"),
        ({"glibc": [2, 999]}, r"C library=glibc 2\.\d+: must be glibc 2\.999 or newer"),
    ],
)
def test_compares_host_with_bundle_requirements(needs, said):
    found = install.unfit({**HERE, **needs})
    here = r"\.".join(map(str, sys.version_info[:2]))
    assert re.search(said.format(here=here, machine=platform.machine()), str(found))


def test_compares_glibc_versions_as_numbers(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.4"))
    assert install.unfit({**HERE, "glibc": [2, 17]})
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert "C library=unknown" in install.unfit(HERE)


def test_damaged_bundle_installs_nothing(tmp_path, monkeypatch, capsys):
    folder, _ = made(tmp_path / "out")
    monkeypatch.setattr(install, "BUNDLE", folder)
    assert install.damaged(folder) is None
    (folder / "wheels" / WHEELS[2]).write_text("another")
    assert install.damaged(folder) == f"wheels/{WHEELS[2]}: its checksum differs from that in SHA256SUMS"
    needs = json.loads((folder / "bundle.json").read_text()) | {"glibc": [2, 5]}
    (folder / "bundle.json").write_text(json.dumps(needs))
    assert install.main([str(tmp_path / "new")]) == 1
    assert "bundle.json: its checksum differs" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    (folder / "bundle.json").unlink()
    assert install.damaged(folder) == "bundle.json: is missing"


def test_non_empty_folder_is_left_alone(tmp_path):
    assert (install.taken(tmp_path), install.taken(tmp_path / "new")) == (None, None)
    version = "{}.{}.{}".format(*sys.version_info[:3])
    (tmp_path / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")
    assert install.taken(tmp_path) is None
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.1.5\n")
    assert "contains an environment for Python 3.1.5; remove it" in install.taken(tmp_path)
    (tmp_path / "pyvenv.cfg").rename(tmp_path / "a-file-of-others")
    assert "must be a new folder" in install.taken(tmp_path)
    assert "must be a new folder" in install.taken(tmp_path / "a-file-of-others")


@pytest.mark.parametrize(("there", "steps"), [(False, 2), (True, 3)])
def test_installs_only_wheels_of_bundle(tmp_path, monkeypatch, there, steps):
    """A folder in which an earlier try broke off is no obstacle; another build of the same version replaces one."""
    calls = []
    monkeypatch.setattr(install.subprocess, "call", lambda words, env: calls.append((words, env)) or 0)
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.org/simple")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").write_text("")
    if there:
        (tmp_path / "bin" / "cpsched").write_text("")
    assert install.install(tmp_path, "0.1.0") == 0
    assert (len(calls), calls[0][0]) == (steps, [sys.executable, "-m", "venv", str(tmp_path)])
    for words, env in calls:
        assert env["PIP_CONFIG_FILE"] == os.devnull
        assert not {"PIP_INDEX_URL", "PYTHONPATH"} & env.keys()
        assert "venv" in words or {"--no-index", "cpsched==0.1.0", str(install.BUNDLE / "wheels")} <= set(words)
    assert ("--force-reinstall" in calls[-1][0]) is there
