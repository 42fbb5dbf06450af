# Included by the top-level Makefile: the test cluster (deploy/cluster says what each command does).


.PHONY: cluster cluster-down cluster-wide cluster-demo cluster-compare cluster-twin cluster-figures test-slurm test-conformance test-systemd test-cluster-monitoring systemd-security

# All of these take SLURM=22.05, 24.11 or 26.05 (the default): which release of Slurm the cluster runs.

cluster: ## the four-node test cluster, up and idle; SLURM=22.05, 24.11 or 26.05
	deploy/cluster build
	deploy/cluster up

cluster-down: ## the test cluster and its volumes away
	deploy/cluster down

cluster-wide: ## WIDE_NODES=500 slurmds in one container
	deploy/cluster build
	deploy/cluster wide $(or $(WIDE_NODES),500)

cluster-demo: cluster ## a mixed workload of sbatch jobs, placed by the bridge
	deploy/demo

cluster-compare: cluster $(VENV)/.installed ## the same jobs under Slurm alone, advised and under the bridge, side by side; TRANSPORT=pyslurm or cli, WORKLOAD=shorter or longer, SEEDS=1, a quarter of an hour for each
	$(BIN)/python -m tests.slurm.compare $(or $(TRANSPORT),pyslurm) --workload $(or $(WORKLOAD),shorter) --seeds $(or $(SEEDS),1)

cluster-twin: cluster $(VENV)/.installed ## Slurm alone on the cluster, and its twin on the record of it: how many starts are the same; eight runs of JOBS=200 submissions, about an hour and a half
	$(BIN)/python -m tests.slurm.twin --jobs $(or $(JOBS),200)

cluster-figures: cluster-wide $(VENV)/.installed ## on 500 nodes: a burst of 200 starts, cycles beside 1,000 queued jobs, with lookahead; TRANSPORT=pyslurm or cli
	CPSCHED_TRANSPORT=$(or $(TRANSPORT),pyslurm) $(BIN)/python -m tests.slurm.figures

test-slurm: $(VENV)/.installed ## a fresh cluster, tests/slurm against it, down (also after a failure); skipped without a Docker engine
	PYTEST="$(BIN)/python -m pytest" deploy/test-slurm

test-conformance: SLURM ?= 26.05
test-conformance: TRANSPORT ?= $(if $(filter-out 26.05,$(SLURM)),cli,pyslurm)
test-conformance: $(VENV)/.installed ## what the bridge must do on any Slurm: SLURM=22.05, 24.11 or 26.05, TRANSPORT=cli or pyslurm (cli where no pyslurm compiles)
	SYSTEMD=0 JOBQUEUE=0 CPSCHED_TRANSPORT=$(TRANSPORT) CPSCHED_REPORT=build/conformance/$(SLURM)-$(TRANSPORT).json PYTEST="$(BIN)/python -m pytest" deploy/test-slurm -m conformance tests/slurm

test-systemd: $(VENV)/.installed ## the units under a real systemd beside a fresh cluster; skipped without a Docker engine
	WIDE_NODES=0 JOBQUEUE=0 PYTEST="$(BIN)/python -m pytest" deploy/test-slurm tests/slurm/test_systemd.py

test-cluster-monitoring: cluster ## Prometheus and Alertmanager beside the bridge of the test cluster: they see it, and all rules are in order
	deploy/cluster bridge
	deploy/cluster monitoring

systemd-security: ## what systemd-analyze reports of the units; the systemd host must be up
	deploy/systemd-security
