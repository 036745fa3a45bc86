"""TrainingJobs that Kueue admits: what may run of them, and which Workloads edl keeps for them."""
