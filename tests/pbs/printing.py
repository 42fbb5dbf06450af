"""The output of PBS's commands for a stand-in server, in the format of OpenPBS 23.06."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from tests.pbs.server import Job, Server, Vnode, clock, hosts_of, words_of

STATES = "Transit:0 Queued:0 Held:0 Waiting:0 Running:0 Exiting:0 Begun:0 "
RESOURCES = """\
#
# Create resources and set their properties.
#
Resource ngpus
    type = long
    flag = hn

Resource cpsched_lease
    type = string
    flag = r

Resource rack
    type = string
    flag = h

Resource cpsched_boost
    type = long
    flag = r

"""
SCHEDULERS = """\
Sched default
    sched_host = vm
    sched_priv = /var/spool/pbs/sched_priv
    scheduling = True
    scheduler_iteration = 600
    state = {state}
    preempt_queue_prio = 150
    preempt_prio = express_queue, normal_jobs

"""
HOSTILE = {"A": '"}]\n{', "B": "},{\\x\\:1,}", "C": "007", "D": "1e5"}
"""A user's environment."""


def moment(at_s: int) -> str:
    """Format `Mon Nov 23 09:41:04 2026`, with TZ=UTC0."""
    return time.asctime(time.gmtime(at_s))


def answer(server: Server, kind: str, objects: dict[str, Any]) -> str:
    """Return an answer with `-F json`; without objects their key is missing."""
    whole: dict[str, Any] = {"timestamp": server.now_s, "pbs_version": "23.06.06", "pbs_server": "vm"}
    return json.dumps(whole | ({kind: objects} if objects else {}), indent=4, separators=(",", ":"))


def jobs(server: Server, among: dict[str, Job], subjobs: bool) -> str:
    """qstat -f -F json."""
    shown = {id: a_job(server, job) for id, job in among.items() if subjobs or "[" not in id or "[]" in id}
    return answer(server, "Jobs", shown)


def a_job(server: Server, job: Job) -> dict[str, Any]:
    """One job."""
    sums: Counter[str] = Counter()
    for chunk in job.chunks:
        sums.update(chunk)
    runs = job.state in "RSE" and bool(job.placed)
    return {
        "Job_Name": int(job.name) if job.name.isdigit() else job.name,
        "Job_Owner": f"{job.user}@vm",
        "job_state": job.state, "queue": job.queue, "server": "vm", "Checkpoint": "u", "ctime": moment(job.ctime),
        **({"exec_host": hosts_of(job.placed), "exec_vnode": words_of(job.placed)} if runs else {}),
        "Hold_Types": "".join(sorted(job.holds, reverse=True)) or "n", "mtime": moment(server.now_s), "Priority": 0,
        "qtime": moment(job.ctime), "Rerunable": str(job.rerunable),
        "Resource_List": {
            **({"cpsched_boost": job.points} if job.points_of else {}),
            **({"mem": f"{sums['mem']}kb"} if sums["mem"] else {}), "ncpus": sums["ncpus"],
            **({"ngpus": sums["ngpus"]} if sums["ngpus"] else {}), "nodect": len(job.chunks), "place": job.place,
            "select": job.select, **({"walltime": clock(job.walltime_s)} if job.walltime_s else {}),
            **(dict(zip(("min_walltime", "max_walltime"), map(clock, job.between_s), strict=True))
               if job.between_s else {}),
        },
        "schedselect": job.select,
        **({"stime": moment(job.start_s), "session_id": 822} if runs else {}),
        "substate": job.substate, "Variable_List": HOSTILE, "euser": job.user, "egroup": job.user, "queue_type": "E",
        **({"array": "True", "array_indices_submitted": job.indices} if job.indices else {}),
        **({"Execution_Time": moment(job.begins_s)} if job.begins_s else {}),
        **({"etime": moment(job.ctime)} if not job.holds and not job.begins_s else {}),
        **({"run_count": job.run_count} if job.run_count else {}),
        **({"Exit_status": job.exit_status} if job.exit_status is not None else {}),
        **({"Account_Name": job.account} if job.account else {}), "project": "_pbs_project_default",
    }  # fmt: skip


def schedulers(server: Server) -> str:
    """qmgr -c 'list sched'."""
    return SCHEDULERS.replace("{state}", "idle" if server.about_to_start is None else "scheduling")


def queues(server: Server) -> str:
    """qstat -Q -f -F json."""
    return answer(server, "Queue", {
        queue.name: {"queue_type": "Execution", "total_jobs": 0, "state_count": STATES, **queue.limits,
                     "enabled": "True", "started": str(queue.started)}
        for queue in server.queues.values()
    })  # fmt: skip


def whole_server(server: Server) -> str:
    """qstat -B -f -F json."""
    return answer(server, "Server", {"vm": {
        "server_state": "Active", "server_host": "vm", "scheduling": str(server.schedules),
        "total_jobs": len(server.jobs), "state_count": STATES, "default_queue": "workq", "query_other_jobs": "True",
        **({"resources_available": server.values} if server.values else {}),
        **({"job_sort_formula": server.formula} if server.formula else {}), "pbs_version": "23.06.06",
    }})  # fmt: skip


def vnodes(server: Server) -> str:
    """pbsnodes -av -F json."""
    shown: dict[str, Any] = {"vm": a_vnode(server, "vm", "free", Vnode("vm", Counter()), Counter(), [])}
    for name, vnode in server.vnodes.items():
        on = [job.id for job in server.on(name)]
        on += [vnode.left] if vnode.left and vnode.left not in on else []
        shown[name] = a_vnode(server, name, server.states(name), vnode, server.used(name), on)
    return answer(server, "nodes", shown)


def vnodes_as_text(server: Server) -> str:
    """Return pbsnodes -av: the texts of each vnode's resources that the stand-in has."""
    racks = (f"{name}\n     resources_available.rack = {vnode.rack}\n" for name, vnode in server.vnodes.items())
    return "\n".join(racks)


def a_vnode(server: Server, name: str, states: str, vnode: Vnode, used: Counter[str], on: list[str]) -> dict[str, Any]:
    """One vnode."""
    has = vnode.has
    return {
        "Mom": "vm", "Port": 15002, "pbs_version": "23.06.06", "ntype": "PBS", "state": states,
        **({"jobs": on} if on else {}),
        "resources_available": {
            "arch": "linux", "host": "vm", "mem": f"{has['mem']}kb", "ncpus": has["ncpus"],
            **({"ngpus": has["ngpus"]} if has["ngpus"] else {}), "vnode": name,
            **({"rack": int(vnode.rack) if vnode.rack.isdigit() else vnode.rack} if vnode.rack else {}),
        },
        "resources_assigned": {
            **({"mem": f"{used['mem']}kb"} if used["mem"] else {}),
            **{what: used[what] for what in ("ncpus", "ngpus") if used[what]},
        },
        "resv_enable": "True", "sharing": "default_shared", "in_multivnode_host": 1, "license": "l",
        "last_state_change_time": server.now_s,
    }  # fmt: skip
