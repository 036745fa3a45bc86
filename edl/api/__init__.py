"""The TrainingJob resource: its spec and status as pydantic models, its validation rules, its CRD and its pods.

May import `edl.model`. Start with `v1.py`.
"""
