"""Why nodes reject pods, and what helps."""
