"""The metrics of the controller, one module for each subject; a module declares each metric with its panels.

To add a metric, declare it in the class of its subject and set it there: docs/how-to/add-a-metric.md. May import the
controller's ports and the pure packages. Start with `declarations.py`.
"""
