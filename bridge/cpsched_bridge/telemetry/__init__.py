"""Observe the bridge: metrics, forecasts, log lines, health, and messages to systemd."""
