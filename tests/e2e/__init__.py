"""Tests on a real control plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok.

- `control_plane`: starts and stops control planes. It knows nothing of edl.
- `worlds`: a control plane with edl on it, and what tests measure there. Its docstring is the index.
- `parts`: one part of edl alone against a real API server: writer, cache, CRD, rights, launcher.
- `scenarios`: the controller at work: the main path, serving waves, large clusters, faults of nodes, installation.
- `faults`: the controller behind a proxy that breaks its connection to the API server.
- `demo`, `record_sessions`: `make demo` and `make sessions`.
"""
