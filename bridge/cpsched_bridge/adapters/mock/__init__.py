"""Simulate a cluster for the demo, for tests, and for policy trials."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from cpsched.errors import CpschedError
from cpsched.model import Cluster
from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster, NodeMaintenance
from cpsched_bridge.adapters.mock.simulated_clocks import make_scaled_clock
from cpsched_bridge.errors import InvalidSetting
from cpsched_bridge.ports import Capabilities
from cpsched_bridge.settings import Section


class MockMaintenanceOptions(Section):
    """A period in which some nodes of the simulated site receive no jobs."""

    name: str = Field(default="maintenance", description="Name of the maintenance period.")
    nodes: tuple[str, ...] = Field(description="Names of the nodes in maintenance.")
    from_s: int = Field(description="Start, in seconds after the first submission.")
    for_s: int = Field(gt=0, description="Duration in seconds.")


class Options(Section):
    """The options in the mock adapter's section of the settings file."""

    system: str = Field(default="eurora", description="Name of a system, or a system file.")
    trace: Path | None = Field(default=None, description="Trace to replay; null: generate a workload.")
    format: str | None = Field(default=None, description="Trace format; null: detected from the trace's first line.")
    days: float = Field(default=1.0, gt=0, description="Length of the generated workload in days.")
    load: float = Field(
        default=1.0, gt=0, description="Factor applied to the generated workload's jobs per day; 1: as on Eurora."
    )
    seed: int = Field(default=1, description="Random seed for the generated workload.")
    max_jobs: int | None = Field(default=None, gt=0, description="Maximum number of jobs to submit; null: all.")
    speed: float = Field(default=1.0, gt=0, description="Simulated seconds per real second.")
    plugin: bool = Field(default=True, description="Hold new jobs for the bridge, as the submit plugin does.")
    scheduler: Literal["easy", "priority"] = Field(
        default="easy",
        description="Scheduler for the jobs that the bridge does not hold: EASY, or priorities as in slurmctld.",
    )
    maintenance: tuple[MockMaintenanceOptions, ...] = Field(
        default=(), description="Maintenance periods for nodes: a list of `name`, `nodes`, `from_s`, `for_s`."
    )


def can(options: Options) -> Capabilities:
    """Return the adapter's capabilities. Boosts require Slurm's scheduler."""
    return Capabilities(boosts=options.scheduler == "priority")


def connect(options: Options) -> MockBackend:
    """Return the backend for a simulated site.

    The site's clock starts at the first job's arrival.
    """
    from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
    from cpsched_sim.systems.system_file import System, load_system
    from cpsched_sim.workloads.eurora_generator import generate_eurora_jobs
    from cpsched_sim.workloads.workload_loader import load

    if options.trace is not None:
        try:
            workload = load(options.trace, options.system, max_jobs=options.max_jobs, format=options.format)
        except CpschedError as error:
            raise InvalidSetting(("options", "trace"), options.trace, str(error)) from error
        cluster, jobs = workload.cluster, list(workload.jobs)
    elif options.system != "eurora":
        rule = "requires options.trace: workloads can be generated only for eurora"
        raise InvalidSetting(("options", "system"), options.system, rule)
    else:
        cluster = System(load_system("eurora")).cluster
        jobs = generate_eurora_jobs(options.days, options.seed, options.load)[: options.max_jobs]
    start_s = min((item.job.submit_s for item in jobs), default=0)
    scheduler = SlurmTwinDispatcher() if options.scheduler == "priority" else None
    maintenance = _build_maintenance_periods(options, cluster, start_s)
    site = MockCluster(cluster, jobs, options.plugin, maintenance=maintenance, scheduler=scheduler)
    return MockBackend(site, make_scaled_clock(options.speed, start_s))


def _build_maintenance_periods(options: Options, cluster: Cluster, start_s: int) -> list[NodeMaintenance]:
    index = {name: node for node, name in enumerate(cluster.node_names)}
    for each in options.maintenance:
        if unknown := [name for name in each.nodes if name not in index]:
            raise InvalidSetting(("options", "maintenance"), unknown[0], "must be a node of the system")
    return [
        NodeMaintenance(
            each.name, tuple(sorted({index[name] for name in each.nodes})), start_s + each.from_s,
            start_s + each.from_s + each.for_s,
        )
        for each in options.maintenance
    ]  # fmt: skip
