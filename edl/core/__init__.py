"""The pure part: values in, values out; no input or output, no clock, no environment, no logging."""
