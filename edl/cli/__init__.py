"""The command line: one file for each command.

A command is a function that takes its settings and returns the exit code. Its flags are declared in `edl.settings`;
`options.py` makes options of them, `app.py` assembles the commands, and `main.py` is the console script `edl`. Start
with `plan.py`. This is the top layer: it may import every other package, and none imports it.
"""
