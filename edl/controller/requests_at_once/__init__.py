"""How many requests the controller has under way at once."""
