"""Copies of the API server's collections, kept up to date in memory by list and watch. Start with `cache.py`."""
