"""The ways to share a cluster, one file each, behind the interface in `base.py`; the registry is `registry.py`."""
