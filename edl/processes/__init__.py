"""The long-running processes, put together: the controller and the data master, started and stopped in order."""
