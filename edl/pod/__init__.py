"""What the containers of a job run: `paddle_k8s` starts a role, `k8s_tools` finds the other pods.

Standard library only, so that a trainer image needs nothing else. Start with `roles.py`.
"""
