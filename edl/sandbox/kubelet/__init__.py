"""Nodes whose containers are processes of this machine, for any API server. Start with `kubelet.py`.

`supervisor.py` starts and ends the processes, `network_hook.py` gives the Python programs among them names and
addresses, and docs/design/sandbox.md says what a container of this kubelet has and what it has not.
"""
