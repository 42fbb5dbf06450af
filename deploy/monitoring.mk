# Included by the top-level Makefile: Prometheus, Grafana and a browser beside a simulated cluster, all on loopback.

.PHONY: monitoring-packages test-monitoring demo-monitoring monitoring-pictures

monitoring-packages: ## Debian's Prometheus, Alertmanager and Chromium, where apt-get can install them
	deploy/monitoring-packages

test-monitoring: kernels ## rules, alerts, dashboards and the status page, with real Prometheus and Chromium; about four minutes
	deploy/monitoring-packages || echo "test-monitoring: tests that need what is lacking are skipped"
	$(BIN)/python -m pytest -q --reruns 1 tests/monitoring

demo-monitoring: kernels ## a simulated cluster, the bridge, Prometheus and Grafana (where it is installed) on this machine
	deploy/monitoring-packages
	$(BIN)/python -m tests.monitoring.demo

monitoring-pictures: kernels ## the pictures of the status page in the documentation, from a real run; some minutes
	deploy/monitoring-packages
	$(BIN)/python -m tests.monitoring.pictures
