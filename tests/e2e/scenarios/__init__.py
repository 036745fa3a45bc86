"""The controller at work on a real control plane: what users and clusters do, and the state it must lead to."""
