"""The page: nodes with their pods, jobs over time, decisions with their reasons, and what-if, live in a browser.

May import `edl.kube`, `edl.observability` and everything below them. Start with `live.py`, which turns snapshots and
plans into what the page shows; `serve.py` starts it on a cluster, and `static` holds what the browser loads.
"""
