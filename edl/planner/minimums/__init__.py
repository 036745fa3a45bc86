"""Places what must fit: serving pods, masters, pservers and minimums. Start with `required.py`."""
