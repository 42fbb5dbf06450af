"""A recorded cluster (Slurm 26.05, four nodes), and ways to change single facts about it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.hostlist import expand_hostlist
from cpsched.slurm_text.objects import SlurmNode, SlurmObject, SlurmPartition, SlurmReservation, SlurmTopology
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import table_to_records, to_slurm_job
from cpsched_bridge.ports import Observation

RECORDED = Path(__file__).parents[4] / "data" / "slurm" / "scene.json"
"""36 pending jobs, one of each kind, named for what they ask for; four running; n1 drained, n4 reserved, n3 soon."""


LATER: dict[str, dict[str, Any]] = {
    "nodes": {"weight": 1, "sockets": 2, "cores_per_socket": 8, "total_cpus": 16},
    "partitions": {"is_topology_exclusive": False, "topology": None, "priority_tier": 1},
    "reservations": {
        "cpu_ids_by_node": {},
        "tres": None,
        "partition": None,
        "flags": [],
        "groups": [],
        "qos": [],
        "allowed_partitions": [],
        "licenses": [],
        "comment": None,
    },
    "jobs": {"preferred_features": None, "extra": None, "gres_binding": None, "node_counts": None},
}
"""Fields that are read since the scene was recorded, with what they held in it."""


class Scene:
    """A recorded reading, changed by record name."""

    def __init__(self) -> None:
        content = json.loads(RECORDED.read_text())
        self.facts: dict[str, Any] = {"topology_plugins": [], "unmodelled_options": [], **content["facts"]}
        self.tables: dict[str, Any] = content["snapshot"]
        self.now_s: int = self.tables["now_s"]
        self.guarded = True
        self.outside: dict[str, list[str]] = {}
        self.topologies: dict[str, SlurmTopology] = {}
        self.rows = {t: table_to_records(self.tables[t]) for t in ("jobs", "nodes", "partitions", "reservations")}
        for name, facts in LATER.items():
            self.tables[name]["fields"] += [field for field in facts if field not in self.tables[name]["fields"]]
            self.rows[name] = [{**facts, **row} for row in self.rows[name]]

    def job(self, name: str) -> dict[str, Any]:
        """The live job of this name."""
        live = [job for job in self.rows["jobs"] if job["name"] == name and job["state"] in ("PENDING", "RUNNING")]
        assert len(live) == 1, name
        return live[0]

    def node(self, name: str) -> dict[str, Any]:
        return next(node for node in self.rows["nodes"] if node["name"] == name)

    def partition(self, name: str) -> dict[str, Any]:
        return next(partition for partition in self.rows["partitions"] if partition["name"] == name)

    def with_job(self, name: str, **facts: Any) -> Scene:
        """This scene, in which the job has these facts."""
        self.job(name).update(facts)
        return self

    def with_node(self, name: str, **facts: Any) -> Scene:
        self.node(name).update(facts)
        return self

    def with_each_node(self, **facts: Any) -> Scene:
        for node in self.rows["nodes"]:
            node.update(facts)
        return self

    def with_partition(self, name: str, **facts: Any) -> Scene:
        self.partition(name).update(facts)
        return self

    def only(self, *names: str) -> Scene:
        """Without other jobs, reservations and trouble with nodes."""
        self.rows["jobs"] = [self.job(name) for name in names]
        self.rows["reservations"] = []
        return self.with_each_node(state="IDLE", allocated_cpus=0, allocated_memory=0, allocated_tres={})

    def config(self) -> SlurmConfig:
        return SlurmConfig(**self.facts["config"])

    def read(self) -> SlurmRecords:
        """The records with all changes made so far."""
        records = make_records(self.now_s, copy.deepcopy(self.rows))
        return replace(records, guarded=self.guarded, topologies=self.topologies, outside=self.outside)


def observe(scene: Scene, **options: Any) -> Observation:
    """Return the scene's observation by a new translator."""
    return SlurmTranslator().observe(scene.read(), **options)


ObjectT = TypeVar("ObjectT", bound=SlurmObject)


def make_records(now_s: int, rows: Mapping[str, Sequence[dict[str, Any]]]) -> SlurmRecords:
    """Return one reading of rows with pyslurm's attributes."""
    reservations = (make_object(SlurmReservation, row) for row in rows["reservations"])
    return SlurmRecords(
        now_s,
        nodes=[slurm_states.mark_unusable_node(make_object(SlurmNode, row)) for row in rows["nodes"]],
        partitions=[make_object(SlurmPartition, row) for row in rows["partitions"]],
        reservations=[reservation.with_strictest_values() for reservation in reservations],
        jobs=slurm_states.mark_unknown_states(map(to_slurm_job, rows["jobs"]), now_s),
    )


def make_object(kind: type[ObjectT], row: dict[str, Any]) -> ObjectT:
    """Return an object, with an invalid node list in `unreadable`."""
    names = {field.name for field in fields(kind)}
    values = {name: None if value == "UNLIMITED" else value for name, value in row.items() if name in names}
    if values.get("state", "") is None:
        del values["state"]
    try:
        expand_hostlist(values.get("nodes"))
    except ValueError as error:
        values |= {"nodes": None, "unreadable": {"nodes": str(error)}}
    return kind(**values)
