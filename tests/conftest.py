"""What every test shares: hypothesis tries the same examples each time, so that a failure is a change of ours.

`HYPOTHESIS_PROFILE=explore pytest` (or `pytest --hypothesis-profile=explore`) tries new ones, and more of them.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", derandomize=False, deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
