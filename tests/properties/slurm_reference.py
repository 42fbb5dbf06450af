"""Provide Slurm's main loop and backfill in plain Python, by node and second, as a reference for the twin.

It shares neither kernels nor clocks with the twin. `Clocked` makes every pass of slurmctld, each second, including
those that the twin skips because they would start nothing.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from cpsched.feasibility import why_infeasible
from tests.properties.reference import Line, sweep


class Plan:
    """The nodes over time during a pass: their free amounts, and the nodes that backfill reserves."""

    def __init__(self, snapshot, rules, whole_nodes=True):
        self.rules, self.snapshot = rules, snapshot
        self.whole_nodes = whole_nodes and snapshot.cluster.size > 1
        table = snapshot.table
        queue = snapshot.queue.tolist()
        self.jobs = [(table.jobs[slot], int(table.estimate_s[slot])) for slot in queue]
        self.priority = [int(table.priority[slot]) for slot in queue]
        tiers = [int(table.tier[slot]) for slot in queue]
        self.order = sorted(range(len(queue)), key=lambda at: (-tiers[at], -self.priority[at], at))
        ends = [int(table.end_s[slot]) - snapshot.now_s for slot in snapshot.running.tolist()]
        longest = max(estimate_s for _, estimate_s in self.jobs)
        step_s = rules.bf_resolution
        spans = sum(estimate_s + 2 * step_s + 1 for _, estimate_s in self.jobs)
        self.horizon = max(ends, default=0) + spans + longest + 2 * step_s + 2
        self.line = Line(snapshot, self.horizon)
        self.kept = []
        self.starts = {}
        self.planned = {}

    def nodes(self, job):
        """Return the nodes of a job's partition or of its own node set."""
        cluster = self.snapshot.cluster
        names = cluster.node_set_names
        row = names.index(job.queue) if job.queue in names[1:] else job.request.node_set
        return cluster.node_sets[row]

    def start(self, job, estimate_s, by_node):
        """Start a job on the first nodes."""
        nodes = range(self.snapshot.cluster.size)
        self.starts[job.id] = self.line.take(job.request, 0, estimate_s, nodes, by_node)
        self.planned[job.id] = self.snapshot.now_s

    def holds_back(self, at):
        """Return whether a job that cannot start may delay other jobs."""
        pending_s = self.snapshot.now_s - self.jobs[at][0].submit_s
        return pending_s >= self.rules.bf_min_age_reserve and self.priority[at] >= self.rules.bf_min_prio_reserve

    def main(self, kind, since_s):
        """Run the main loop "full", to "depth", or for jobs "submitted" later; return whether a limit ended it."""
        blocked, seen, depth = set(), Counter(), 0
        withdrawn = np.zeros(self.snapshot.cluster.size, bool)
        for at in self.order:
            job, estimate_s = self.jobs[at]
            if kind != "submitted":
                if self.rules.sched_max_job_start and len(self.starts) >= self.rules.sched_max_job_start:
                    return True
                seen[job.queue] += 1
                if self.rules.partition_job_depth and seen[job.queue] > self.rules.partition_job_depth:
                    continue
            if kind == "depth":
                if depth > self.rules.default_queue_depth:
                    return True
                depth += 1
            if job.queue in blocked:
                continue
            by_node, _ = self.line.fits(job.request, 0, 1)
            by_node = [0 if withdrawn[node] else units for node, units in enumerate(by_node)]
            is_tried = kind != "submitted" or job.submit_s > since_s
            if is_tried and sum(by_node) >= job.request.units:
                self.start(job, estimate_s, by_node)
            elif self.holds_back(at) and why_infeasible(job.request, self.snapshot.cluster) is None:
                blocked.add(job.queue)
                withdrawn |= self.nodes(job)
        return False

    def backfill(self):
        """Run backfill; return the number of starts, and whether a limit prevented one."""
        rules, now_s, step_s = self.rules, self.snapshot.now_s, self.rules.bf_resolution
        tested = started = 0
        cut = False
        begins_s, ends_s = now_s // step_s * step_s, (now_s + 60 * rules.bf_window) // step_s * step_s
        bounds, reserved = set(), Counter()
        counted = Counter()
        limits = {"user": rules.bf_max_job_user, "part": rules.bf_max_job_part}
        limits |= {"both": rules.bf_max_job_user_part, "assoc": rules.bf_max_job_assoc}
        if rules.bf_max_job_assoc:
            limits["user"] = 0
        size = rules.bf_max_job_test if rules.bf_node_space_size is None else rules.bf_node_space_size
        for at in self.order:
            job, estimate_s = self.jobs[at]
            if job.id in self.planned:
                continue
            if tested >= rules.bf_max_job_test:
                return started, True
            keys = {
                "user": job.user,
                "part": job.queue,
                "both": (job.user, job.queue),
                "assoc": (job.account, job.user),
            }
            if any(limits[kind] and counted[kind, key] >= limits[kind] for kind, key in keys.items()):
                cut = True
                continue
            counted.update(keys.items())
            tested += 1
            by_node, _ = self.line.fits(job.request, 0, estimate_s)
            open_now = self.open(0, estimate_s + 1)
            by_node = [units if open_now[node] else 0 for node, units in enumerate(by_node)]
            if sum(by_node) >= job.request.units:
                self.start(job, estimate_s, by_node)
                started += 1
                if started == rules.bf_max_job_start:
                    return started, True
                continue
            most = rules.bf_job_part_count_reserve
            if not self.holds_back(at) or (most and reserved[job.queue] >= most):
                continue
            if self.whole_nodes:
                found, nodes = self.place(job, estimate_s, bounds, begins_s - now_s, ends_s - now_s)
            else:
                found, nodes = self.earliest(job.request, estimate_s), None
            if found is None or found > 60 * rules.bf_window:
                continue
            if 1 + len(bounds) >= size:
                return started, True
            begin_s = max((now_s + found) // step_s * step_s, begins_s)
            end_s = max((now_s + found + estimate_s + step_s - 1) // step_s * step_s, begin_s + step_s)
            bounds |= {at_s for at_s in (begin_s, end_s) if begins_s < at_s < ends_s}
            if self.whole_nodes:
                if begin_s < ends_s:
                    self.kept.append((set(nodes), begin_s - now_s, min(end_s, ends_s) - now_s))
            else:
                self.reserve(job.request, found, estimate_s, found, end_s - now_s)
            self.planned[job.id] = now_s + found
            reserved[job.queue] += 1
        return started, cut

    def open(self, begin, end):
        """Return by node whether it has no whole-node reservation in [begin, end), seconds from now."""
        kept = [nodes for nodes, since, until in self.kept if since < end and begin < until]
        return [not any(node in nodes for nodes in kept) for node in range(self.snapshot.cluster.size)]

    def ends(self, nodes):
        """Return the seconds at which something ends on these nodes."""
        free = self.line.free[sorted(nodes)]
        return [t for t in range(1, self.horizon) if (free[:, t] != free[:, t - 1]).any()]

    def place(self, job, estimate_s, bounds, begins, ends):
        """Return start in seconds from now and nodes as `_attempt_backfill` in backfill.c, or None for both."""
        now_s, step_s, start = self.snapshot.now_s, self.rules.bf_resolution, 0
        edges = [begins, *sorted(at_s - now_s for at_s in bounds), ends]
        slots = list(pairwise(edges))
        inside = self.nodes(job)
        while start <= ends:
            until, later = start + estimate_s, None
            for k, (begin, end) in enumerate(slots):
                if end > start and k + 1 < len(slots) and later is None:
                    here, there = self.open(begin, end), self.open(*slots[k + 1])
                    if any(there[n] and not here[n] and inside[n] for n in range(len(here))):
                        later = end
                if begin > until and end > start:
                    if later is None and k + 2 < len(slots):
                        later = slots[k + 1][1]
                    break
            found, nodes = self.will_run(job.request, start, until, self.horizon if later is None else later)
            if found is not None:
                since = (now_s + found) // step_s * step_s - now_s
                still_open = self.open(since, (now_s + found + estimate_s + step_s - 1) // step_s * step_s - now_s)
                if all(still_open[node] for node in nodes):
                    return found, nodes
                later = found + step_s if found == start else found
            if later is None:
                break
            start = later
        return None, None

    def will_run(self, request, start, until, last):
        """Return start and nodes as `_future_run_test` in job_test.c, where running jobs end in time windows."""
        allowed = self.open(start, until + 1)
        may_use = self.line.cluster.node_sets[request.node_set]
        usable = [n for n, is_open in enumerate(allowed) if is_open and may_use[n]]
        ends, now_s = [at for at in self.ends(usable) if start < at <= last], self.snapshot.now_s
        stops, window = [start], 30
        if ends:
            first = now_s + ends[0]
            anchor = first + 30 - first % 30 - now_s
            while stops[-1] < ends[-1]:
                stops.append(min(anchor + window, last))
                window *= 2
        for stop in stops:
            by_node, _ = self.line.fits(request, min(stop, self.horizon - 1), min(stop, self.horizon - 1) + 1)
            by_node = [units if node in usable else 0 for node, units in enumerate(by_node)]
            if sum(by_node) < request.units:
                continue
            order = range(len(by_node))
            if self.rules.bf_busy_nodes:
                order = sorted(order, key=lambda n: bool((self.line.free[n, 0] == self.line.cluster.capacity[n]).all()))
            nodes, left = [], request.units
            for node in order:
                if by_node[node] and left > 0:
                    nodes.append(node)
                    left -= by_node[node]
            return max([at for at in self.ends(nodes) if start < at <= stop], default=start), nodes
        return None, None

    def earliest(self, request, estimate_s):
        """Return the first second from which the job's units fit for its whole duration."""
        if not self.line.fits(request, self.horizon - 1, self.horizon)[1]:
            return None
        every = range(self.horizon)
        return next(t for t in every if self.line.fits(request, t, min(t + estimate_s, self.horizon))[1])

    def reserve(self, request, begin, estimate_s, since, until):
        """Withdraw the amounts of a planned job during [since, until) seconds from now."""
        by_node, _ = self.line.fits(request, begin, begin + estimate_s)
        nodes = list(range(self.snapshot.cluster.size))
        if self.rules.bf_busy_nodes:
            line = self.line
            nodes.sort(key=lambda n: -line.held_since(request, n, begin, begin + estimate_s, by_node[n]))
        left = request.units
        for node in nodes:
            here = min(by_node[node], left)
            if here:
                left -= here
                taken = self.snapshot.cluster.capacity[node] if request.exclusive else here * np.array(request.per_unit)
                self.line.free[node, max(0, since) : max(0, until)] -= taken


class Clocked:
    """slurmctld's clocks by second, for `batch_sched_delay=0` and passes that take no time."""

    def __init__(self, rules, **how):
        self.rules, self.how = rules, how
        self.full_s = self.backfill_s = None
        self.asked = self.first = True

    def second(self, snapshot, arrived, ended):
        """Make the passes of one second with a queue, and return the placements of starts by job id."""
        rules, now_s, plan = self.rules, snapshot.now_s, Plan(snapshot, self.rules, **self.how)
        main = None
        if rules.sched_interval == -1:
            main = "submitted" if arrived and not rules.defer else None
        elif self.first or (now_s - self.full_s) % rules.sched_interval == 0:
            main = "full"
        elif arrived or ended:
            main = "depth"
        if self.full_s is None:
            self.full_s = now_s
        if main is not None:
            since_s = now_s - 1 if not self.first else -(10**9)
            plan.main(main, since_s)
        if rules.bf_interval != -1 and (self.backfill_s is None or now_s - self.backfill_s >= rules.bf_interval):
            self.backfill_s = now_s
            plan.backfill()
        self.first = False
        return plan.starts


def replay(cluster, trace, rules, until_s, **how):
    """Return start and placement by job id, with passes in every second from the first submission to `until_s`."""
    return sweep(cluster, trace, Clocked(rules, **how).second, until_s)
