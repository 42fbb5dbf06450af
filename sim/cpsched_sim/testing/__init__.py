"""A test suite for plug-ins with the properties of every dispatcher: `pytest --cpsched-dispatcher my.module:Class`.

- `strategies`: random clusters, queues and traces.
- `dispatcher_properties`: the properties, each a function of a dispatcher's name. The checks of whole schedules share
  no code with the simulator.
- `suite`: the properties as tests; `plugin` adds them to pytest.

Only this package imports Hypothesis and pytest; `pip install 'cpsched[testing]'` installs both.
"""
