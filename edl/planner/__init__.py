"""Snapshot in, plan out: who runs, how many trainers each job has, where new ones go and which ones are deleted.

Pure: no clock, no network, no logging. May import `edl.model`. Start with `decide.py`, which runs the stages in
order; `problem.py` is the snapshot as arrays, `guard.py` recomputes every rule without the solver.
"""
