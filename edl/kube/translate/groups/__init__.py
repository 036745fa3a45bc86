"""Groups of pods that their scheduler starts only together, and the queues that hold them back."""
