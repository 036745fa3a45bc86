"""What a running process shows: logs, metrics, decision records and their replay, health and status pages.

May import the controller's ports and the pure packages. Start with `recorder.py`, which the controller reports to.
"""
