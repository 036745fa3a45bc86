"""Pauses before what has failed is tried again. Start with `undone_starts.py`."""
