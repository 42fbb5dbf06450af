"""Synthetic rows for the Parquet formats, based on their published descriptions."""

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq

MORNING = datetime(2020, 5, 4, 6, 0, tzinfo=UTC)
MORNING_S = int(MORNING.timestamp())


def at(seconds, zone=UTC):
    return (MORNING + timedelta(seconds=seconds)).astimezone(zone)


def pm100(job=1, **fields):
    """A job of PM100: two nodes for ten minutes, five minutes after its submission."""
    return {
        "job_id": job,
        "submit_time": at(0),
        "eligible_time": at(0),
        "start_time": at(300),
        "end_time": at(900),
        "time_limit": 60,
        "run_time": 600,
        "num_nodes_alloc": 2,
        "num_nodes_req": 2,
        "num_cores_alloc": 64,
        "num_cores_req": 64,
        "num_gpus_alloc": 8,
        "num_gpus_req": 8,
        "mem_alloc": 400,
        "mem_req": 400,
        "user_id": 17,
        "group_id": 3,
        "partition": "1",
        "qos": "0",
        "job_state": "COMPLETED",
        "shared": "OK",
        "nodes": ["r1n1", "r1n2"],
        "node_power_consumption": [900, 1100, 1300],
        "cpu_power_consumption": [300, 310, 320],
        "mem_power_consumption": [50, 50, 60],
    } | fields


def kestrel(id="7", **fields):
    """A job of Kestrel: two nodes for ten minutes, five minutes after its submission."""
    return {
        "id": id,
        "job_id": 7,
        "name_hash": "0a1b2c3",
        "user_hash": "1111111",
        "account_hash": "2222222",
        "partition": "short",
        "state": "COMPLETED",
        "state_simple": "COMPLETED",
        "submit_time": at(0),
        "start_time": at(300),
        "end_time": at(900),
        "nodes_req": 2,
        "processors_req": 104,
        "memory_req": "85G",
        "wallclock_req": timedelta(hours=4),
        "nodes_used": 2,
        "processors_used": 208,
        "wallclock_used": timedelta(minutes=10),
        "nodelist": ["x1004c3s0b1n1", "x1004c3s0b1n2"],
        "qos": "normal",
        "gpus_requested": None,
        "consumed_energy_raw_joules": 720_000,
    } | fields


def write(path, rows, **types):
    """The rows as a Parquet table; `types` are those of columns that Arrow would guess otherwise."""
    table = pa.table({name: pa.array([row[name] for row in rows], types.get(name)) for name in rows[0]})
    pq.write_table(table, path, row_group_size=2)
    return path


MOUNTAIN = timezone(timedelta(hours=-7))
