# Included by the top-level Makefile: the test cluster (deploy/cluster says what each command does).


.PHONY: cluster cluster-down cluster-wide cluster-demo test-slurm

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

test-slurm: $(VENV)/.installed ## a fresh cluster, tests/slurm against it, down (also after a failure); skipped without a Docker engine
	PYTEST="$(BIN)/python -m pytest" deploy/test-slurm
