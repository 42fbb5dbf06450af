"""Write the files to install next to Slurm or PBS (`cpsched deploy-files`).

An installed program contains these files in its directory `deployment`, under their paths in the repository. A program
that runs from a clone reads them from the clone. Pages are adapted for readers without a clone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cpsched_bridge.errors import SettingsError

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class DeploymentFile:
    """A file with its source and its location on the administrator's machine."""

    name: str
    """Path relative to the output directory."""
    place: str
    """Location where the administrator installs the file."""
    purpose: str
    """Purpose of the file, for the table in README.md."""
    mode: int = 0o644
    origin: str = ""
    """Path in the repository, or "" if it is `deploy/` followed by `name`."""

    @property
    def repository_path(self) -> str:
        """The path in the repository."""
        return self.origin or f"deploy/{self.name}"

    @classmethod
    def for_page(cls, name: str, purpose: str) -> DeploymentFile:
        """Return the entry for a documentation page."""
        return cls(f"{name.upper()}.md", f"{_DOC_FOLDER}{name.upper()}.md", purpose, origin=f"docs/{name}.md")


_DOC_FOLDER = "/usr/share/doc/cpsched/"
_SYSTEMD_FOLDER = "/etc/systemd/system/"
_DASHBOARD_TARGET = "/var/lib/grafana/dashboards/cpsched/, or Grafana's *Import*"

FILES: tuple[DeploymentFile, ...] = (
    DeploymentFile.for_page("install", "Read this first: install, shadow, advise, control, roll back, upgrade."),
    DeploymentFile.for_page("operate", "What each symptom and alert means, and what to do about it."),
    DeploymentFile.for_page("safety", "What the bridge guarantees, and what its account may do."),
    DeploymentFile.for_page("managed-jobs", "Which jobs the bridge manages, and which only Slurm manages."),
    DeploymentFile.for_page(
        "supported-settings", "Which Slurm releases, settings, limits and priorities are supported."
    ),
    DeploymentFile.for_page("monitoring", "Metrics, alerts, dashboards and the status page."),
    DeploymentFile.for_page("pbs", "What differs under PBS."),
    DeploymentFile.for_page("why-is-my-job-waiting", "For the cluster's users."),
    DeploymentFile(
        "bridge.yaml",
        "/etc/cpsched/bridge.yaml",
        "The bridge's settings, each with its default and meaning.",
        origin="deploy/bridge.example.yaml",
    ),
    DeploymentFile(
        "bridge.pbs.yaml",
        "/etc/cpsched/bridge.yaml, with PBS",
        "The bridge's settings for PBS, with each option of its adapter.",
        origin="deploy/bridge.pbs.example.yaml",
    ),
    DeploymentFile("systemd/cpsched-bridge.service", _SYSTEMD_FOLDER, "The bridge as a service."),
    DeploymentFile("systemd/cpsched-deadman.service", _SYSTEMD_FOLDER, "One check of the bridge's heartbeat."),
    DeploymentFile(
        "systemd/cpsched-deadman-pbs.service",
        f"{_SYSTEMD_FOLDER}cpsched-deadman.service, with PBS",
        "The heartbeat check for PBS: opens the queues when the heartbeat stops.",
    ),
    DeploymentFile(
        "systemd/cpsched-bridge-pbs.conf",
        f"{_SYSTEMD_FOLDER}cpsched-bridge.service.d/pbs.conf, with PBS",
        "Permissions that PBS commands need in the bridge's service.",
    ),
    DeploymentFile("systemd/cpsched-deadman.timer", _SYSTEMD_FOLDER, "Runs the check every 30 s."),
    DeploymentFile(
        "systemd/cpsched-tune.service",
        _SYSTEMD_FOLDER,
        "Reports which settings would have been best in recent weeks, without changing any.",
    ),
    DeploymentFile("systemd/cpsched-tune.timer", _SYSTEMD_FOLDER, "Runs the report once a week."),
    DeploymentFile(
        "cpsched-deadman",
        "/usr/local/sbin/",
        "The dead-man script: releases held jobs to Slurm when the heartbeat stops.",
        0o755,
        origin="deploy/systemd/cpsched-deadman",
    ),
    DeploymentFile(
        "job_submit.lua",
        "/etc/slurm/job_submit.lua, on the host of slurmctld",
        "The submit plugin: new jobs arrive held and marked. For control mode only.",
        origin="deploy/slurm/job_submit.lua",
    ),
    DeploymentFile(
        "prometheus/scrape.example.yaml", "prometheus.yml, under scrape_configs", "Scrape configuration for the bridge."
    ),
    DeploymentFile("prometheus/alerts.yaml", "a file in rule_files of prometheus.yml", "Alert rules."),
    DeploymentFile(
        "prometheus/rules.yaml", "next to the alert rules", "Recording rules that alerts and dashboards share."
    ),
    DeploymentFile(
        "prometheus/prometheus.yml",
        "/etc/prometheus/, if there is no Prometheus yet",
        "A complete Prometheus for the bridge's host.",
    ),
    DeploymentFile(
        "prometheus/alertmanager.yml",
        "/etc/prometheus/, if there is no Alertmanager yet",
        "One message per fault; add your own receivers.",
    ),
    DeploymentFile(
        "grafana/dashboards/cpsched-scheduling.json",
        _DASHBOARD_TARGET,
        "Dashboard: waits, slowdowns and starts of jobs.",
    ),
    DeploymentFile(
        "grafana/dashboards/cpsched-decisions.json", _DASHBOARD_TARGET, "Dashboard: cost and failures of cycles."
    ),
    DeploymentFile(
        "grafana/dashboards/cpsched-predictions.json", _DASHBOARD_TARGET, "Dashboard: predictions and expected starts."
    ),
    DeploymentFile(
        "grafana/provisioning/datasources/cpsched.yaml",
        "/etc/grafana/provisioning/datasources/",
        "Grafana's Prometheus data source; CPSCHED_PROMETHEUS_URL is its address.",
    ),
    DeploymentFile(
        "grafana/provisioning/dashboards/cpsched.yaml",
        "/etc/grafana/provisioning/dashboards/",
        "Grafana's folder of dashboards.",
    ),
    DeploymentFile(
        "pyslurm.Dockerfile",
        "nowhere: an example",
        "How pyslurm was built for a Slurm release that has no matching pyslurm release.",
        origin="deploy/slurm/Dockerfile.bridge",
    ),
)


RUNBOOK_URL = f"{_DOC_FOLDER}OPERATE.md"
"""Runbook to which alerts link unless a URL is given."""
_URL = re.compile(r"https?://[^\s\"'\\#{}]+", re.ASCII)


def write_deployment_files(folder: Path, force: bool = False, runbooks: str = "") -> Iterator[str]:
    """Write every file and a README.md below `folder`. Yield one line per file.

    `runbooks` is the URL of the site's folder that contains OPERATE.md. Alerts link to it. Files with the same content
    are not changed. Raise `SettingsError` if a file cannot be written, or before the first write if a file has
    different content and `force` is not set.
    """
    if runbooks and not _URL.fullmatch(runbooks):
        raise SettingsError(f"--runbooks={runbooks}: must be an http or https URL without spaces, quotes, # or braces")
    contents = {file.name: (read_adapted_content(file), file.mode) for file in FILES}
    if runbooks:
        alerts, mode = contents["prometheus/alerts.yaml"]
        linked = alerts.replace(RUNBOOK_URL.encode(), f"{runbooks.rstrip('/')}/OPERATE.md".encode())
        contents["prometheus/alerts.yaml"] = linked, mode
    contents["README.md"] = (_make_readme().encode(), 0o644)
    present = {name for name in contents if (folder / name).is_file()}
    other = sorted(name for name in present if _read_file(folder / name) != contents[name][0])
    if other and not force:
        raise SettingsError(f"{folder}: {', '.join(other)}: exists with different content; use --force to overwrite")
    for name, (content, mode) in contents.items():
        path = folder / name
        if name in present and name not in other:
            yield f"unchanged  {path}"
            continue
        _write_file(path, content, mode)
        yield f"{'replaced' if name in present else 'wrote':9}  {path}"


def read_adapted_content(file: DeploymentFile) -> bytes:
    """Return the content to write for a file."""
    content = _find_source(file).read_bytes()
    if not file.repository_path.endswith(".md"):
        return content
    names = {Path(each.repository_path).name: each.name for each in FILES if each.repository_path.endswith(".md")}
    return adapt_page_for_installation(content.decode(), names).encode()


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from error


def _write_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise SettingsError(f"{path}: cannot be written: {error.strerror or error}") from error


def _find_source(file: DeploymentFile) -> Path:
    """Return the path of the installed file, or of the file in the clone."""
    installed = _PACKAGE / "deployment" / file.repository_path
    return installed if installed.exists() else _PACKAGE.parents[1] / file.repository_path


def _make_readme() -> str:
    """Return the README, with a table of the files and their destinations."""
    rows = "\n".join(f"| `{file.name}` | {file.place} | {file.purpose} |" for file in FILES)
    return (
        "# What goes where\n\n"
        "Written by `cpsched deploy-files`. Begin with INSTALL.md, which states when each file is needed.\n"
        "No file takes effect before you install it.\n\n"
        f"| file | destination | purpose |\n|---|---|---|\n{rows}\n"
    )


_CLONE_SECTION = re.compile(r"<!-- clone -->.*?<!-- end clone -->\n?", re.DOTALL)
_COMMENT = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]\n]*)\]\(([\w./-]+\.md)?(#[\w-]*)?\)")
_BLANK_LINES = re.compile(r"\n{3,}")


def adapt_page_for_installation(text: str, names: Mapping[str, str]) -> str:
    """Return a page adapted for readers without a clone.

    Remove comments and the text between `<!-- clone -->` and `<!-- end clone -->`. A link to a page in `names` is
    replaced by a link to that file. A link to any other page becomes plain text.
    """

    def replace_link(found: re.Match[str]) -> str:
        words, page, anchor = found[1], found[2], found[3] or ""
        if page is None:
            return found[0]
        return f"[{words}]({names[page]}{anchor})" if page in names else words

    return _BLANK_LINES.sub("\n\n", _LINK.sub(replace_link, _COMMENT.sub("", _CLONE_SECTION.sub("", text))))
