"""A cluster of the sandbox with the interface of a `ControlPlane`, so that the same tests run on both.

API server, scheduler and controllers are those of `edl.sandbox`, in one process of their own. In place of kubelets
there are hollow nodes, whose pods behave as the stages of `tests/e2e/control_plane/stages` say.

- `plane`: starts, uses and stops such a cluster.
- `__main__`: the process of the cluster; it ends when its standard input does.
- `hollow`, `hollow_status`: the nodes.
"""
