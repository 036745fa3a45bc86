"""The command line: one file for each command. Start with `main.py`."""
