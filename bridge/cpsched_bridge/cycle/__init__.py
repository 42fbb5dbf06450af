"""One cycle of the bridge: observe, reconcile, decide, verify, apply."""
