"""What each Queue may use: weighted max-min over the queues of a cohort, with lending, borrowing and reclaim."""
