"""A cluster on one machine: a kubelet whose containers are processes, a scheduler and controllers.

Each part is an ordinary client of an API server, the embedded one or a real one. Start with `kubelet/kubelet.py`.
This package may import `kube` and everything below it; only `cli` imports this package.
"""
