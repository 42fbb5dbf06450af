"""The bridge's cycle: read the cluster, decide, send commands, and record the results.

- `bridge_loop`: the steps of a cycle; `cycle_failure_names`: its exceptions.
- `startup`, `cycle_timing`, `real_clock`: the steps before the first cycle and the start times of later ones.
- `observation_reader`, `policy_training`: the state of the cluster and the training of the policy.
- `reconcile`, `start_outcomes`: the state of each job in the ledger and the outcomes of starts.
- `cluster_state_builder`, `verified_decision`, `policy_fallback`, `decision_deadline`, `isolation_client`: the decision
  of an untrusted policy.
- `intent_sender`, `cycle_command_sender`, `release_jobs`, `booster`, `boost_planning`: commands to the cluster.
- `backoff`: jobs whose starts fail, and commands without effect.
- `mode_and_readiness`, `circuit_breaker`, `leader_election`: whether the bridge may act.
- `cycle_reporting`: records and reports.
"""
