"""What the project costs, measured: CPU seconds and ratios in one run, never a timed test."""
