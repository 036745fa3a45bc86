"""Shadow mode: what edl would decide in a cluster, reported without one write.

`watcher.py` runs the controller's own cache, observer and planner beside a cluster, in the mode in which plans are
shown and none is carried out. `answers.py` compares edl's view with each answer of kube-scheduler, `wishes.py`
collects the evictions that plans ask for, `timeline.py` what is used and what would be, `unknowns.py` what edl does
not understand, and `costs.py` what the controller would have cost. `document.py` is the report as JSON, and `page.py`
the same as a page. This package imports `edl.kube`, `edl.controller` and the packages below them. Start with
`process.py`.
"""
