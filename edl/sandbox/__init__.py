"""A cluster on one machine, for a laptop and for tests: no Docker, no root, nothing to compile.

`apiserver` serves the Kubernetes API from memory. A kubelet whose containers are processes, a scheduler and the
controllers of a serving load are ordinary clients of an API server, the embedded one or a real one.
This package may import `kube` and everything below it; only `cli` imports this package.
"""
