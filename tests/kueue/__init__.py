"""Tests of workloads that Kueue admits and edl sizes, beside the real Kueue (`make kueue-test`)."""
