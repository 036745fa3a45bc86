"""What the containers of a job run: `paddle_k8s` starts a role, and `k8s_tools` finds the other pods of the job.

Standard library only, so that a trainer's image needs nothing else. Start reading in `roles.py`.
"""
