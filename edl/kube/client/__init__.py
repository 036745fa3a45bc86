"""The client of the API server: credentials, one session, and the errors that it raises. Start with `session.py`."""
