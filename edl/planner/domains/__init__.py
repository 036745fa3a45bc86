"""What a plan must keep to for jobs whose pods stay together, apart from how it is made: see `guard`."""
