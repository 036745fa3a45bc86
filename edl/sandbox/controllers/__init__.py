"""What kube-controller-manager does for edl and for a serving load. Start with `manager.py`.

Garbage collection, Deployments and ReplicaSets, Endpoints, lost nodes, and volume claims. Each controller is a loop
that compares what is with what should be. The API server itself empties namespaces that are deleted.
"""
