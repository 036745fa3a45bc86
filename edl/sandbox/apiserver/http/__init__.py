"""What a request and its response look like on the wire. Start with `request.py`."""
