"""Trainers of one job in one rack or NVLink domain: which domain each job gets; start reading at `search`."""
