# Included by the top-level Makefile: the test cluster (deploy/cluster says what each command does).


.PHONY: cluster cluster-down cluster-wide cluster-demo cluster-compare cluster-shares cluster-figures test-slurm test-systemd test-cluster-monitoring systemd-security

cluster: ## the four-node test cluster, up and idle
	deploy/cluster build
	deploy/cluster up

cluster-down: ## the test cluster and its volumes away
	deploy/cluster down

cluster-wide: ## WIDE_NODES=500 slurmds in one container
	deploy/cluster build
	deploy/cluster wide $(or $(WIDE_NODES),500)

cluster-demo: cluster ## a mixed workload of sbatch jobs, placed by the bridge
	deploy/demo

cluster-compare: cluster $(VENV)/.installed ## the same jobs under Slurm's own backfill and under the bridge, side by side; SEEDS=1, a quarter of an hour for each
	$(BIN)/python -m tests.slurm.compare --seeds $(or $(SEEDS),1)

cluster-shares: cluster $(VENV)/.installed ## two accounts with shares 80:20 under Slurm's own backfill and under the bridge: what each uses over time; about twenty minutes
	$(BIN)/python -m tests.slurm.shares

cluster-figures: cluster-wide $(VENV)/.installed ## on 500 nodes: a burst of 200 starts, cycles beside 1,000 queued jobs, with lookahead
	$(BIN)/python -m tests.slurm.figures

test-slurm: $(VENV)/.installed ## a fresh cluster, tests/slurm against it, down (also after a failure); skipped without a Docker engine
	PYTEST="$(BIN)/python -m pytest" deploy/test-slurm

test-systemd: $(VENV)/.installed ## the units under a real systemd beside a fresh cluster; skipped without a Docker engine
	WIDE_NODES=0 PYTEST="$(BIN)/python -m pytest" deploy/test-slurm tests/slurm/test_systemd.py

test-cluster-monitoring: cluster ## Prometheus and Alertmanager beside the bridge of the test cluster: they see it, and all rules are in order
	deploy/cluster bridge
	deploy/cluster monitoring

systemd-security: ## what systemd-analyze says of the units, into docs/systemd-security.md; the systemd host must be up
	deploy/systemd-security >docs/systemd-security.md
