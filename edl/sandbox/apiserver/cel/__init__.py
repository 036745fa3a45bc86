"""The Common Expression Language, as far as Kubernetes rules use it. Start with `program.py`."""
