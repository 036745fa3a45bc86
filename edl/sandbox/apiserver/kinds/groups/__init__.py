"""The built-in kinds, a module for each API group or for several small ones."""
