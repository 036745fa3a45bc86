"""Collections of the API server, mirrored into memory by list and watch. Start with `cache.py`."""
