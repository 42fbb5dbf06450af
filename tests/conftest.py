"""Profiles of Hypothesis for this suite: `pytest --hypothesis-profile quick`, which `make test` takes.

Under it a property tries a quarter of its examples; `make bounds`, and the unit tests of `make coverage`, try them all.
"""

from hypothesis import settings

settings.register_profile("quick", max_examples=25)
