"""How long tests wait for what comes at once on an idle machine."""

ENOUGH_S = 600.0
"""For a machine that has a hundred times as much to do: only a test that fails waits so long."""
