"""The properties of every dispatcher as a test suite for plug-ins: `pytest --cpsched-dispatcher my.module:Class`.

- `strategies`: random clusters, queues and traces.
- `dispatcher_properties`: the properties, each a function of a dispatcher's name, with checks of whole schedules that
share no code with the simulator.
- `suite`: the properties as tests; `plugin` adds them to pytest.

Only this package imports Hypothesis and pytest; `pip install 'cpsched[testing]'` installs both.
"""
