"""Jobs that may change their global batch: how much a sample teaches, and the speed that policies and jobs know."""
