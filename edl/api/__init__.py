"""The TrainingJob resource only: its spec and status in pydantic, its rules, its CRD, and the pods that it becomes.

May import `edl.model`. Start with `v1.py`.
"""
