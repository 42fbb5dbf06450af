"""`make demo-monitoring`: a simulated cluster, the bridge, Prometheus, Alertmanager, and Grafana if it is installed.

Everything listens on loopback; state is in a temporary folder; Ctrl-C ends all processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tests.monitoring.stack import (
    ALERTMANAGER,
    PROMETHEUS,
    ROOT,
    BridgeProcess,
    Monitoring,
    Process,
    missing,
    port_or_free,
    running,
)

GRAFANA = ROOT / "deploy" / "grafana"
SETTINGS = {
    "policy": {"dispatcher": "pcp20", "dispatcher_settings": {"limit_s": 0.1}, "predictor": "last-two"},
    "options": {"load": 3.0, "days": 3.0, "speed": 60.0},
}


def grafana(folder: Path, port: int, prometheus: str) -> Process | None:
    """Start Grafana with the dashboards and datasource of `deploy/grafana`, or return None without it."""
    program = shutil.which("grafana") or shutil.which("grafana-server")
    if program is None:
        return None
    provisioning = folder / "provisioning"
    shutil.copytree(GRAFANA / "provisioning", provisioning)
    board = provisioning / "dashboards" / "cpsched.yaml"
    board.write_text(board.read_text().replace("/var/lib/grafana/dashboards/cpsched", str(GRAFANA / "dashboards")))
    home = next((p for p in ("/usr/share/grafana", "/opt/grafana") if Path(p).is_dir()), "/usr/share/grafana")
    words = [program, *(["server"] if program.endswith("grafana") else []), f"--homepath={home}"]
    settings = {
        "CPSCHED_PROMETHEUS_URL": prometheus,
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_PROVISIONING": str(provisioning),
        "GF_PATHS_DATA": str(folder / "data"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    }
    return Process.start(words, folder / "grafana.log", env={**os.environ, **settings})


def main() -> int:
    """Run until Ctrl-C."""
    if lacks := missing(PROMETHEUS, ALERTMANAGER):
        print(f"demo-monitoring: not installed: {', '.join(lacks)}; see deploy/monitoring-packages")
        return 1
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with tempfile.TemporaryDirectory(prefix="cpsched-monitoring-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        bridge = BridgeProcess(folder / "bridge", SETTINGS, port_or_free(9764))
        watchers = Monitoring(folder / "prometheus", [bridge.target], 1.0, 5, port_or_free(9090), port_or_free(9093))
        print("starting; the first time kernels are compiled, which takes a minute ...", flush=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(running(bridge, watchers))
            print(f"status page   {bridge.url}\nmetrics       {bridge.url}metrics")
            print(f"Prometheus    {watchers.url}/alerts\nAlertmanager  http://127.0.0.1:{watchers.alertmanager_port}")
            port = port_or_free(3000)
            (folder / "grafana").mkdir()
            if (shown := grafana(folder / "grafana", port, watchers.url)) is not None:
                stack.callback(shown.stop)
                print(f"Grafana       http://127.0.0.1:{port}/dashboards")
            else:
                print("Grafana       not installed; its dashboards are in deploy/grafana/dashboards")
            print("A minute of the simulated cluster passes in a second. Ctrl-C ends everything.", flush=True)
            signal.signal(signal.SIGINT, lambda *_: ended.set())
            ended.wait()
            print("\nending ...", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while everything was starting
        sys.exit(130)
