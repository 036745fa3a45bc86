"""Examples: jobs to submit, and a demonstration that runs by itself."""
