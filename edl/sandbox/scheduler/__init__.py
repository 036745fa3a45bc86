"""A small scheduler that binds pods and preempts as kube-scheduler does. Start with `scheduler.py`.

`filters.py`, `scores.py` and `preemption.py` are pure functions of what `view.py` reads.
"""
