"""Saved clusters that the tests of several commands use."""

from __future__ import annotations

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1, creationTimestamp: "2026-01-05T10:00:00Z"}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: ctr, namespace: ads}
spec:
  fault_tolerant: true
  master: {resources: {requests: {cpu: 100m, memory: 64Mi}}}
  trainer: {entrypoint: train, min-instance: 1, max-instance: 3, resources: {requests: {cpu: "1", memory: 1Gi}}}
"""
"""One node and one job, ads/ctr, that has no pod."""

NEW_JOB = """
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: new, namespace: ads}
spec: {trainer: {entrypoint: train, min-instance: 2, max-instance: 2, resources: {requests: {cpu: "1", memory: 1Gi}}}}
"""
"""Another job; it needs two trainers."""

SERVING_POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "1", memory: 1Gi}}}]}
"""
"""A serving pod on the node."""
