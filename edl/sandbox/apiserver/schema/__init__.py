"""Types of objects: decoding, structural schemas of custom resources, CEL rules. Start with `types.py`."""
