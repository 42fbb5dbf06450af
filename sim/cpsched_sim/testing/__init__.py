"""What every dispatcher promises, as a suite that plug-ins can run: `pytest --cpsched-dispatcher my.module:Class`.

- `worlds`: random clusters, queues and traces.
- `judge`: judges of a whole schedule that share no code with the simulator.
- `promises`: the promises, each a function of a dispatcher's words.
- `suite`: the same as tests; `plugin` brings them into pytest.

Hypothesis and pytest are imported here alone; `pip install 'cpsched[testing]'` installs both.
"""
