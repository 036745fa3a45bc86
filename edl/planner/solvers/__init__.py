"""The linear programs of the planner in plain arrays, and the libraries that solve them."""
