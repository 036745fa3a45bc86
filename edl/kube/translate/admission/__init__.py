"""What the API server may change or reject in new pods, as far as saved files tell it."""
