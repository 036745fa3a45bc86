"""The nouns: resources and units, nodes and pods, jobs and their status, the snapshot, the plan, the actions.

Values only, standard library only; may import `edl.errors`. Every other package uses these types. Start with
`cluster.py` (the input of a decision) and `plan.py` (its result).
"""
