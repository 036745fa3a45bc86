"""Benchmarks of the planner and the data master: CPU seconds and ratios. They are no tests and have no limits."""
