"""Calls the data masters of all jobs, and keeps what they report. Start with `monitor.py`."""
