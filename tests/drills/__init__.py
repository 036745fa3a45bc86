"""Disasters that an operator meets, on a running cluster (`make drills`); docs/drills.md has their outcomes."""
