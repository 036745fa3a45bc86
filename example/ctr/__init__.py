"""Will somebody click? A model with sparse features on Paddle's own parameter servers."""

import os

os.environ.setdefault("FLAGS_enable_pir_api", "0")  # parameter servers know Paddle's older programs alone
