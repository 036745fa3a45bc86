"""The rows of `kubectl get` for the built-in kinds: a module for each group of kinds, and the `cells` they share."""
