"""A Kubernetes cluster in one process, for a laptop and for tests: no cluster, no Docker and no root.

It may import `kube` and everything below that; only `cli` imports it. Start with `apiserver`.
"""
