"""Invalid, odd and malicious TrainingJobs, for all that must refuse or survive them."""
