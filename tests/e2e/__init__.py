"""End-to-end tests, in the sandbox or on a real control plane (`pytest --on cluster`).

- `control_plane`: starts and stops real control planes: etcd, kube-apiserver, kube-scheduler, kube-controller-manager
  and kwok. It knows nothing of edl.
- `sandbox`: the same for clusters of `edl.sandbox`, with hollow nodes.
- `worlds`: a cluster with edl on it, and what tests measure there. Its docstring is the index.
- `parts`: one part of edl alone against an API server: writer, cache, CRD, rights, launcher.
- `scenarios`: the controller at work: the main path, serving waves, large clusters, faults of nodes, installation.
- `faults`: the controller behind a proxy that breaks its connection to the API server.
- `demo`, `record_sessions`: `make demo-cluster` and `make sessions`.
"""
