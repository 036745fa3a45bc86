"""Watches what a loop does beside its loss: to the step, its optimizers and schedulers, and to gradients."""
