"""Observe the bridge: metrics, forecasts, logs, health and systemd notifications."""
