"""A recorded cluster (Slurm 26.05, four nodes), and ways to change single facts about it."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cpsched.slurm_text.objects import SlurmTopology
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import parse_cluster_records, table_to_records

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
    """A snapshot as the child sends it, changed by record name."""

    def __init__(self) -> None:
        content = json.loads(RECORDED.read_text())
        self.facts: dict[str, Any] = {"topology_plugins": [], "unmodelled_options": [], **content["facts"]}
        self.tables: dict[str, Any] = content["snapshot"]
        self.now_s: int = self.tables["now_s"]
        self.guarded = True
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

    def only(self, *names: str) -> Scene:
        """Without other jobs, reservations and trouble with nodes."""
        self.rows["jobs"] = [self.job(name) for name in names]
        self.rows["reservations"] = []
        for node in self.rows["nodes"]:
            node.update(state="IDLE", allocated_cpus=0, allocated_memory=0, allocated_tres={})
        return self

    def read(self) -> SlurmRecords:
        """The records with all changes made so far."""
        return parse_cluster_records(self.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """The snapshot with all changes made so far."""
        topologies = {name: asdict(topology) for name, topology in self.topologies.items()}
        made: dict[str, Any] = {"now_s": self.now_s, "guarded": self.guarded, "topologies": topologies}
        for table, rows in self.rows.items():
            fields = self.tables[table]["fields"]
            made[table] = {"fields": fields, "rows": [[copy.deepcopy(row.get(f)) for f in fields] for row in rows]}
        return made
