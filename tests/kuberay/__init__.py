"""Tests of RayClusters that edl resizes, beside the real KubeRay (`make kuberay-test`)."""
