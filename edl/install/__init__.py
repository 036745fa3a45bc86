"""Generated files: deployment manifests, dashboards, alerts, and the reference tables of docs/.

`make generate` writes all of them (`reference.py`). Start with `manifests.py`.
"""
