"""The embedded Kubernetes API server: kubectl, the official client and edl's controller work against it unmodified.

Memory only. Start with `server.py`, which opens the port; `api.py` executes one request; `faults.py` makes requests
fail on purpose. Where it differs from a real kube-apiserver, it is wrong: `tests/contract` compares the two.
"""
