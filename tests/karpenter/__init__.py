"""Tests beside the real Karpenter, whose own provider brings nodes of kwok (`make karpenter-test`)."""
