"""Write the files that an administrator installs next to Slurm (`cpsched deploy-files`).

An installed program carries them in its folder `deployment`, under their paths in the repository. A program that runs
from a clone reads them from the clone. The pages address readers without a clone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cpsched_bridge.errors import SettingsError
from cpsched_bridge.program.installed_docs import strip_clone_notes

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class DeploymentFile:
    """A file with its source and its place on the administrator's machine."""

    source: str
    """Path in the repository."""
    name: str
    """Path below the output folder."""
    place: str
    """Where the administrator installs the file."""
    purpose: str
    """Purpose, for the list in README.md."""
    mode: int = 0o644


_PAGES = "/usr/share/doc/cpsched/"

FILES: tuple[DeploymentFile, ...] = (
    *(
        DeploymentFile(f"docs/{page}.md", f"{page.upper()}.md", f"{_PAGES}{page.upper()}.md", purpose)
        for page, purpose in (
            ("install", "Read this first: install, shadow, advise, control, roll back, upgrade."),
            ("operate", "What each symptom and alert means, and what to do."),
            ("safety", "What the bridge guarantees, and what its account may do."),
            ("managed-jobs", "Which jobs the bridge starts, and which it leaves to Slurm."),
            ("supported-settings", "Which Slurm releases, settings, limits and priorities are supported."),
            ("monitoring", "Metrics, alerts, dashboards and the status page."),
            ("pbs", "What differs with PBS instead of Slurm."),
            ("why-is-my-job-waiting", "For the users of the cluster."),
        )
    ),
    DeploymentFile(
        "deploy/bridge.example.yaml",
        "bridge.yaml",
        "/etc/cpsched/bridge.yaml",
        "The bridge's settings, each with its default and meaning.",
    ),
    DeploymentFile(
        "deploy/bridge.pbs.example.yaml",
        "bridge.pbs.yaml",
        "/etc/cpsched/bridge.yaml, with PBS",
        "The same for PBS, with each option of its adapter.",
    ),
    DeploymentFile(
        "deploy/systemd/cpsched-bridge.service",
        "systemd/cpsched-bridge.service",
        "/etc/systemd/system/",
        "The bridge as a service.",
    ),
    DeploymentFile(
        "deploy/systemd/cpsched-deadman.service",
        "systemd/cpsched-deadman.service",
        "/etc/systemd/system/",
        "One check of the bridge's heartbeat.",
    ),
    DeploymentFile(
        "deploy/systemd/cpsched-deadman-pbs.service",
        "systemd/cpsched-deadman-pbs.service",
        "/etc/systemd/system/cpsched-deadman.service, with PBS",
        "The same for PBS: opens the queues when the heartbeat stops.",
    ),
    DeploymentFile(
        "deploy/systemd/cpsched-bridge-pbs.conf",
        "systemd/cpsched-bridge-pbs.conf",
        "/etc/systemd/system/cpsched-bridge.service.d/pbs.conf, with PBS",
        "Permissions that PBS commands need in the bridge's service.",
    ),
    DeploymentFile(
        "deploy/systemd/cpsched-deadman.timer",
        "systemd/cpsched-deadman.timer",
        "/etc/systemd/system/",
        "Runs that check every 30 s.",
    ),
    DeploymentFile(
        "deploy/systemd/cpsched-tune.service",
        "systemd/cpsched-tune.service",
        "/etc/systemd/system/",
        "Report which settings would have been best in the last weeks; change nothing.",
    ),
    DeploymentFile(
        "deploy/systemd/cpsched-tune.timer",
        "systemd/cpsched-tune.timer",
        "/etc/systemd/system/",
        "Runs that report once a week.",
    ),
    DeploymentFile(
        "deploy/systemd/cpsched-deadman",
        "cpsched-deadman",
        "/usr/local/sbin/",
        "The dead-man script: releases held jobs to Slurm when the heartbeat stops.",
        0o755,
    ),
    DeploymentFile(
        "deploy/slurm/job_submit.lua",
        "job_submit.lua",
        "/etc/slurm/job_submit.lua, on the host of slurmctld",
        "The submit plugin: new jobs arrive held and marked. For control mode only.",
    ),
    DeploymentFile(
        "deploy/prometheus/scrape.example.yaml",
        "prometheus/scrape.example.yaml",
        "prometheus.yml, under scrape_configs",
        "Scrape configuration for the bridge.",
    ),
    DeploymentFile(
        "deploy/prometheus/alerts.yaml",
        "prometheus/alerts.yaml",
        "a file in rule_files of prometheus.yml",
        "Alert rules.",
    ),
    DeploymentFile(
        "deploy/prometheus/rules.yaml",
        "prometheus/rules.yaml",
        "next to the alert rules",
        "Recording rules that alerts and dashboards share.",
    ),
    DeploymentFile(
        "deploy/prometheus/prometheus.yml",
        "prometheus/prometheus.yml",
        "/etc/prometheus/, if there is no Prometheus yet",
        "A complete Prometheus for the bridge's host.",
    ),
    DeploymentFile(
        "deploy/prometheus/alertmanager.yml",
        "prometheus/alertmanager.yml",
        "/etc/prometheus/, if there is no Alertmanager yet",
        "One message per fault; add your own receivers.",
    ),
    *(
        DeploymentFile(
            f"deploy/grafana/dashboards/{name}.json",
            f"grafana/dashboards/{name}.json",
            "/var/lib/grafana/dashboards/cpsched/, or Grafana's *Import*",
            purpose,
        )
        for name, purpose in (
            ("cpsched-scheduling", "Dashboard: waits, slowdowns and starts of jobs."),
            ("cpsched-decisions", "Dashboard: cost and failures of cycles."),
            ("cpsched-predictions", "Dashboard: predictions and expected starts."),
        )
    ),
    DeploymentFile(
        "deploy/grafana/provisioning/datasources/cpsched.yaml",
        "grafana/provisioning/datasources/cpsched.yaml",
        "/etc/grafana/provisioning/datasources/",
        "Grafana's Prometheus data source; CPSCHED_PROMETHEUS_URL is its address.",
    ),
    DeploymentFile(
        "deploy/grafana/provisioning/dashboards/cpsched.yaml",
        "grafana/provisioning/dashboards/cpsched.yaml",
        "/etc/grafana/provisioning/dashboards/",
        "Grafana's folder of dashboards.",
    ),
    DeploymentFile(
        "deploy/slurm/Dockerfile.bridge",
        "pyslurm.Dockerfile",
        "nowhere: an example",
        "How pyslurm was built for a Slurm release without a pyslurm release.",
    ),
)


RUNBOOKS = f"{_PAGES}OPERATE.md"
"""The runbook in alerts, unless a URL is given."""
_URL = re.compile(r"https?://[^\s\"'\\#{}]+", re.ASCII)


def write_files(folder: Path, force: bool = False, runbooks: str = "") -> Iterator[str]:
    """Write every file and a README.md below `folder`. Yield one line for each.

    `runbooks` is the URL of the site's folder with OPERATE.md, to which alerts link. Files with equal content are not
    touched. Raise `SettingsError`, before the first write, if a file has other content and `force` is not set, or if a
    file cannot be written.
    """
    if runbooks and not _URL.fullmatch(runbooks):
        raise SettingsError(f"--runbooks={runbooks}: must be an http or https URL without spaces, quotes, # or braces")
    contents = {file.name: (read_content(file), file.mode) for file in FILES}
    if runbooks:
        alerts, mode = contents["prometheus/alerts.yaml"]
        linked = alerts.replace(RUNBOOKS.encode(), f"{runbooks.rstrip('/')}/OPERATE.md".encode())
        contents["prometheus/alerts.yaml"] = linked, mode
    contents["README.md"] = (_readme().encode(), 0o644)
    present = {name for name in contents if (folder / name).is_file()}
    other = sorted(name for name in present if _read(folder / name) != contents[name][0])
    if other and not force:
        raise SettingsError(f"{folder}: {', '.join(other)}: exists with other content; --force overwrites")
    for name, (content, mode) in contents.items():
        path = folder / name
        if name in present and name not in other:
            yield f"unchanged  {path}"
            continue
        _put(path, content, mode)
        yield f"{'replaced' if name in present else 'wrote':9}  {path}"


def read_content(file: DeploymentFile) -> bytes:
    """Return the content to write."""
    content = _source(file).read_bytes()
    if not file.source.endswith(".md"):
        return content
    names = {Path(each.source).name: each.name for each in FILES if each.source.endswith(".md")}
    return strip_clone_notes(content.decode(), names).encode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from error


def _put(path: Path, content: bytes, mode: int) -> None:
    """Write the file atomically."""
    beside = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.chmod(mode)
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise SettingsError(f"{path}: cannot be written: {error.strerror or error}") from error


def _source(file: DeploymentFile) -> Path:
    """Return the installed file, or the file in the clone."""
    installed = _PACKAGE / "deployment" / file.source
    return installed if installed.exists() else _PACKAGE.parents[1] / file.source


def _readme() -> str:
    """Return the table of files and places."""
    rows = "\n".join(f"| `{file.name}` | {file.place} | {file.purpose} |" for file in FILES)
    return (
        "# What goes where\n\n"
        "Written by `cpsched deploy-files`. Begin with INSTALL.md, which states when each file is needed.\n"
        "No file takes effect before you install it.\n\n"
        f"| file | its place | what it is |\n|---|---|---|\n{rows}\n"
    )
