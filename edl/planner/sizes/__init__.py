"""Counts that jobs may have: `search` chooses a size for each job, `rounding` takes what exceeds one."""
