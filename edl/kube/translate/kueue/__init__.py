"""The objects of Kueue, and what they say about the jobs that edl sizes."""
