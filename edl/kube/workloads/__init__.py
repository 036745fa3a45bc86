"""Workloads that edl resizes and does not own: one adapter for each kind, all in `registry`; start at `adapter`."""
