"""A test suite with the properties that every dispatcher must have.

The command is `pytest --cpsched-dispatcher my.module:Class`.

- `hypothesis_strategies`: random clusters, queues and traces.
- `dispatcher_properties`: the properties, each a function of a dispatcher's name. The checks on whole schedules share
  no code with the simulator.
- `property_suite`: the properties as tests; `plugin` adds them to pytest.

Only this package imports Hypothesis and pytest; `pip install 'cpsched[testing]'` installs both.
"""
