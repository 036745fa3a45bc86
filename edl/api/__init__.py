"""The TrainingJob resource: its model, its CRD, and the Kubernetes objects that a job becomes."""
