"""A ledger in virtual time, and a simpler account of the same data to compare it with."""
