"""Examples: jobs to submit, and a training program that also runs without a cluster."""
