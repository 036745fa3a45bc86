"""Scenarios from other sources: records of a live controller, the workloads of research, arrival traces."""
