"""What is generated: deployment manifests, dashboards, alerts, and the reference pages of docs/.

`make generate` writes all of it. Start with `manifests.py`.
"""
