"""What the loss of a batch is: over how much it is a mean, and whether it is one of single records at all."""
