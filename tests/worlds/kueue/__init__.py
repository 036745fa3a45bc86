"""Worlds with Kueue."""
