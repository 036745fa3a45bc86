"""What the server remembers: objects with their versions, and the changes for watches. Start with `store.py`."""
