"""Large clusters that are written straight through the API: from an event to the controller's first write.

Nodes, bound pods and jobs are objects only; no kubelet runs. `python -m tests.e2e.scale` measures on a real API
server (`make scale-5000`, `make scale-peer`), and `test_small.py` plays a few dozen nodes in the ordinary tests.
"""
