# Included by the top-level Makefile: the test cluster (deploy/cluster describes each command).

.PHONY: cluster cluster-down cluster-wide cluster-demo cluster-compare cluster-twin cluster-figures test-slurm test-conformance test-sites test-systemd test-cluster-monitoring systemd-security

# All of these accept SLURM=22.05, 24.11 or 26.05 (the default), the Slurm release of the cluster.

cluster: ## start the four-node test cluster; SLURM=22.05, 24.11 or 26.05
	deploy/cluster build
	deploy/cluster up

cluster-down: ## remove the test cluster and its volumes
	deploy/cluster down

cluster-wide: ## start WIDE_NODES=500 slurmds in one container
	deploy/cluster build
	deploy/cluster wide $(or $(WIDE_NODES),500)

cluster-demo: cluster ## run a mixed workload of sbatch jobs, placed by the bridge
	deploy/demo

cluster-compare: cluster $(VENV)/.installed ## compare the same jobs under Slurm alone, advise mode and control mode; TRANSPORT=pyslurm or cli, WORKLOAD=shorter or longer, SEEDS=1 (15 minutes each)
	$(BIN)/python -m tests.slurm.compare $(or $(TRANSPORT),pyslurm) --workload $(or $(WORKLOAD),shorter) --seeds $(or $(SEEDS),1)

cluster-twin: cluster $(VENV)/.installed ## compare the starts of Slurm alone with those of its twin; eight runs of JOBS=200 submissions, about 90 minutes
	$(BIN)/python -m tests.slurm.twin --jobs $(or $(JOBS),200)

cluster-figures: cluster-wide $(VENV)/.installed ## measure a burst of 200 starts and cycles with 1,000 queued jobs on 500 nodes, with lookahead; TRANSPORT=pyslurm or cli
	CPSCHED_TRANSPORT=$(or $(TRANSPORT),pyslurm) $(BIN)/python -m tests.slurm.figures

test-slurm: $(VENV)/.installed ## run tests/slurm on a fresh cluster and remove it, also after a failure; skipped without a Docker engine
	PYTEST="$(BIN)/python -m pytest" deploy/test-slurm

test-conformance: SLURM ?= 26.05
test-conformance: TRANSPORT ?= $(if $(filter-out 26.05,$(SLURM)),cli,pyslurm)
test-conformance: $(VENV)/.installed ## test the required behaviour on any Slurm: SLURM=22.05, 24.11 or 26.05, TRANSPORT=cli or pyslurm (cli if no pyslurm compiles)
	SYSTEMD=0 JOBQUEUE=0 CPSCHED_TRANSPORT=$(TRANSPORT) CPSCHED_REPORT=build/conformance/$(SLURM)-$(TRANSPORT).json PYTEST="$(BIN)/python -m pytest" deploy/test-slurm -m conformance tests/slurm

test-sites: $(VENV)/.installed ## test configurations modelled on real sites, under Slurm alone and in control mode; SITE=site07 runs one, SITES=3 three that change daily
	PYTHON=$(BIN)/python deploy/test-sites $(addprefix --site ,$(SITE)) $(if $(SITES),--count $(SITES) --first $$(($$(date +%s) / 86400 * $(SITES))))

test-systemd: $(VENV)/.installed ## test the units under a real systemd with a fresh cluster; skipped without a Docker engine
	WIDE_NODES=0 JOBQUEUE=0 PYTEST="$(BIN)/python -m pytest" deploy/test-slurm tests/slurm/test_systemd.py

test-cluster-monitoring: cluster ## check that Prometheus and Alertmanager see the test cluster's bridge and that all rules work
	deploy/cluster bridge
	deploy/cluster monitoring

systemd-security: ## print what systemd-analyze reports about the units; the systemd host must be running
	deploy/systemd-security
