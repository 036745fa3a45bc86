"""Exit codes of every command; 0 is done."""

FAILED = 1
"""The command failed, or found that a rule is broken."""

USAGE = 2
"""A flag, a file or another input cannot be used."""
