"""The clusters the bridge can stand beside.

An adapter `cpsched_bridge.adapters.NAME` offers two names: `Options`, a pydantic model of its part of the settings
file, and `connect(options: Options) -> Backend`. It is imported when it is first needed, and only by the command line.
"""
