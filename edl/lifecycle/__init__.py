"""A job, its pods and its decision in; its status, events and actions out.

Pure. May import `edl.model`. Start with `desired_state.py`.
"""
