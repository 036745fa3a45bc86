"""The life cycle of one job: from the job, its pods and its decision to its status, its events and the actions.

Pure. May import `edl.model`. Start with `desired_state.py`.
"""
