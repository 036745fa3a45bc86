"""Workloads whose own controller creates and deletes the pods: what it will do, as far as a plan depends on it."""
