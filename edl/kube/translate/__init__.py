"""Raw objects become `edl.model` values, here and nowhere else. Start with `snapshot.py`."""
