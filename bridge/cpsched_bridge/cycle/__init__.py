"""The bridge's cycle: read the cluster, decide, send commands, and record results.

- `bridge_loop`, `cycle_recorder`: the steps of a cycle, its events and its exceptions.
- `startup`, `cycle_timing`, `loop_clock`: the steps before the first cycle, the start time of each cycle, and the
  clock and signals of the loop.
- `observation_reader`, `cluster_state`: the cluster's state as read, and as a decision uses it.
- `reconcile`, `start_outcomes`: each job's state in the ledger, and the outcomes of starts.
- `verified_decision`, `policy_fallback`, `isolated_dispatcher`: decisions by an untrusted policy.
- `intent_sender`, `cycle_command_sender`, `release_jobs`, `booster`, `boost_planning`, `preemption_executor`: commands.
- `backoff`: jobs whose starts fail, and commands without effect.
- `mode_and_readiness`, `circuit_breaker`, `leader_election`: whether the bridge may act.
- `cycle_reporting`: records and reports.
"""
