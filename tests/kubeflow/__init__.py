"""Tests of PyTorchJobs that edl resizes, beside the real training operator of Kubeflow (`make kubeflow-test`)."""
