"""What edl needs from a cluster, stated once and run against the embedded API server and a real control plane."""
