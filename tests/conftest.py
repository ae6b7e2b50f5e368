"""Settings for every test.

Hypothesis draws the same examples in every run, so that a change is judged by what it changes;
``--hypothesis-profile explore`` draws fresh ones, and more of them.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeat")
