"""What edl needs from a cluster, stated once and run against the embedded API server and a real control plane.

`servers` puts the two behind one interface; `embedded_server` runs the embedded one in a thread.
`record_types` and `record_numbers` record what the embedded server knows of the built-in types.
"""
