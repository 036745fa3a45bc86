"""Computes what each Queue may use: weighted max-min in a cohort, with lending, borrowing and reclaim."""
