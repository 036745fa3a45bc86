"""Rules between pods and of volumes on the real control plane."""
