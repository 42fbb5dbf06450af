"""A simulated cluster behind the bridge's ports: for the demo, for tests, and to try a policy out."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from cpsched_bridge.adapters.mock.backend import MockBackend
from cpsched_bridge.adapters.mock.clocks import RunningClock
from cpsched_bridge.adapters.mock.remote import RemoteBackend
from cpsched_bridge.adapters.mock.site import Site
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.ports import Backend
from cpsched_bridge.settings import Section


class Options(Section):
    """The mock's part of the settings file."""

    system: str = Field(default="eurora", description="System by name, or a system file.")
    trace: Path | None = Field(default=None, description="Trace to submit; without one a workload is generated.")
    format: str | None = Field(
        default=None, description="The trace's format by name; by default what its first line looks like."
    )
    days: float = Field(default=1.0, gt=0, description="Length of the generated workload.")
    load: float = Field(default=1.0, gt=0, description="Jobs per day of the generated workload, 1 as on Eurora.")
    seed: int = Field(default=1, description="Seed of the generated workload.")
    max_jobs: int | None = Field(default=None, gt=0, description="Submit only so many jobs.")
    speed: float = Field(default=1.0, gt=0, description="Seconds at the site per real second.")
    plugin: bool = Field(default=True, description="New jobs arrive held for the bridge, as with the submit plugin.")
    socket: Path | None = Field(
        default=None,
        description="Ask a site in another process there (`python -m cpsched_bridge.adapters.mock FILE`).",
    )
    deadline_s: float = Field(default=5.0, gt=0, description="How long that process may take to answer.")


def connect(options: Options) -> Backend:
    """The backend that the options ask for."""
    if options.socket is not None:
        return RemoteBackend(options.socket, options.deadline_s)
    return local_backend(options)


def local_backend(options: Options) -> MockBackend:
    """A site in this process whose time runs; it begins when its first job arrives."""
    from cpsched_sim.systems.system import System, load_system
    from cpsched_sim.workloads.eurora import eurora_jobs
    from cpsched_sim.workloads.load import load

    if options.trace is not None:
        workload = load(options.trace, options.system, max_jobs=options.max_jobs, format=options.format)
        cluster, jobs = workload.cluster, list(workload.jobs)
    elif options.system != "eurora":
        raise SettingsError(f"options.trace: must be given for system {options.system}; only eurora is generated")
    else:
        cluster = System(load_system("eurora")).cluster
        jobs = eurora_jobs(options.days, options.seed, options.load)[: options.max_jobs]
    start_s = min((item.job.submit_s for item in jobs), default=0)
    return MockBackend(Site(cluster, jobs, options.plugin), RunningClock(options.speed, start_s))
