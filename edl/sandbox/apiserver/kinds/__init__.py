"""The served kinds as data: names, columns, defaults, rules. Start with `kind.py`, then `groups`."""
