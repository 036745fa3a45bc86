"""What pods may not share: rules between pods, and what volumes require of nodes. Start with `apply.py`."""
