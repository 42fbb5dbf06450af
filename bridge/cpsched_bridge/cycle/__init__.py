"""The cycle of the bridge: read the cluster, decide, send commands, and record the results.

- `bridge_loop`: the steps of a cycle; `cycle_failures`: its exceptions.
- `startup`, `cycle_timing`, `real_clock`: the steps before the first cycle and the start times of later ones.
- `observation_reader`, `policy_training`: the state of the cluster and the training of the policy with it.
- `reconcile`, `start_outcomes`: the state of each job in the ledger and the outcomes of starts.
- `cluster_state_builder`, `verified_decision`, `policy_fallback`, `decision_deadline`, `isolation_client`: the
  decision, made by a policy that is not trusted.
- `command_sender`, `cycle_commands`, `release_jobs`, `booster`, `boost_planning`: commands to the cluster.
- `backoff`: jobs whose starts fail, and commands without effect.
- `bridge_health`, `circuit_breaker`, `leader_election`: whether the bridge may act.
- `cycle_reporting`: records and reports.
"""
