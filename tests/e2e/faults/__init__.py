"""What goes wrong between a controller and a real API server, and what must come of it."""
