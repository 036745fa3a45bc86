"""Random histories of a cluster under the real controller, and the rules that each of them must keep."""
