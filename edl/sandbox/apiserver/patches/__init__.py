"""The patch types, and the managers of fields for server-side apply. Start with `apply.py`."""
