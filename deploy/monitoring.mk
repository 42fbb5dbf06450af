# Included by the top-level Makefile: Prometheus, Grafana and a browser with a simulated cluster, all on loopback.

.PHONY: monitoring-packages test-monitoring demo-monitoring monitoring-pictures

monitoring-packages: ## install Debian's Prometheus, Alertmanager and Chromium with apt-get
	deploy/monitoring-packages

test-monitoring: kernels ## test rules, alerts, dashboards and the status page with real Prometheus and Chromium; about four minutes
	deploy/monitoring-packages || echo "test-monitoring: tests that need missing packages are skipped"
	$(BIN)/python -m pytest -q --reruns 1 tests/monitoring

demo-monitoring: kernels ## run a simulated cluster, the bridge, Prometheus and Grafana (if installed) on this machine
	deploy/monitoring-packages
	$(BIN)/python -m tests.monitoring.demo

monitoring-pictures: kernels ## take the documentation's pictures of the status page in a real run; some minutes
	deploy/monitoring-packages
	$(BIN)/python -m tests.monitoring.pictures
