"""How others see the bridge: metrics, log lines, signs of life to systemd."""
