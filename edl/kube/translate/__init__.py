"""Kubernetes objects become `edl.model` values; no other package does this. Start with `snapshot.py`."""
