"""A saved cluster: JSON and YAML files, read without access to a cluster. Start with `saved_cluster.py`."""
