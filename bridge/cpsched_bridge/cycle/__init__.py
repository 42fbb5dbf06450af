"""One cycle of the bridge: read the cluster, decide, send commands, record the results.

- `bridge_loop`: the steps of a cycle; `cycle_failures`: its exceptions.
- `startup`, `cycle_timing`, `real_clock`: the time before the first cycle, and when the next one starts.
- `observation_reader`, `policy_training`: the cluster's state, and what the policy learns from it.
- `reconcile`, `start_outcomes`: the state of each job of the ledger, and the results of starts.
- `cluster_state_builder`, `verified_decision`, `policy_fallback`, `decision_deadline`, `isolation_client`: the
  decision, by a policy that is not trusted.
- `command_sender`, `cycle_commands`, `release_jobs`, `booster`, `boost_planning`: commands to the cluster.
- `backoff`: jobs whose starts fail, and commands without effect.
- `bridge_health`, `circuit_breaker`, `leader_election`: whether the bridge may act.
- `cycle_reporting`: records and reports.
"""
