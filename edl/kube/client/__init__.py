"""Requests to the API server: configuration, one session, and its errors as ours. Start with `session.py`."""
