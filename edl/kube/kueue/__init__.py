"""The Workloads of Kueue that edl makes for TrainingJobs: their objects, and the requests about them."""
