"""What edl decodes of an object at all: no deeper and no larger than this. Start with `object_bounds.py`."""
