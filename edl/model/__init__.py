"""The nouns: resources and units, nodes and pods, jobs and their status, the snapshot, the plan, the actions.

Values only, standard library only; may import `edl.errors`. Everything else in edl speaks in these. Start with
`cluster.py` (what a decision is made from) and `plan.py` (what it is).
"""
