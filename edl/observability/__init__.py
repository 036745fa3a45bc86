"""What a running process shows: logs, metrics, decision records and their replay, health pages.

May import the controller's ports. Start with `decision_records.py`.
"""
