"""Installs a planted bug in a Python process that a test has started, before anything else is imported."""

from tests.planted.install import install_named

install_named()
