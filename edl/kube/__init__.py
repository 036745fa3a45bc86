"""The Kubernetes API: everything through which the controller reads and changes a live cluster.

`client/` sends requests, `mirror/` keeps up-to-date copies of collections, and `translate/` turns objects into
`edl.model` values. The modules beside them hold the writer, leader election, the client of the masters, and the
readers of saved snapshots and queue files. This package imports `edl.api`, `edl.lifecycle`, `edl.planner`,
`edl.controller.ports` and the packages below them, and never the command line or the installation. Start with
`cluster.py`.
"""
