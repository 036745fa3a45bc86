"""The Kubernetes API: what the controller's ports need of a live cluster.

`client/` sends requests, `mirror/` keeps copies of collections up to date, `translate/` turns objects into
`edl.model` values. Here stand the writer, leader election and files of saved objects. Start with `cluster.py`.
"""
