"""The bridge's cycle: read the cluster, decide, send commands, and record results.

- `bridge_loop`, `cycle_failures`: the steps of a cycle, and its exceptions.
- `startup`, `cycle_timing`, `real_clock`: the steps before the first cycle, and the start time of each cycle.
- `observation_reader`, `policy_training`: the cluster's state, and the policy's training.
- `reconcile`, `start_outcomes`: each job's state in the ledger, and the outcomes of starts.
- `cluster_state_builder`, `verified_decision`, `policy_fallback`, `decision_deadline`, `isolated_dispatcher`: decisions
  by an untrusted policy.
- `intent_sender`, `cycle_command_sender`, `release_jobs`, `booster`, `boost_planning`, `preemption_executor`: commands.
- `backoff`: jobs whose starts fail, and commands without effect.
- `mode_and_readiness`, `circuit_breaker`, `leader_election`: whether the bridge may act.
- `cycle_reporting`: records and reports.
"""
