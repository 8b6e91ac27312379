"""The mechanism: values in, values out. No I/O, no clock, no logger."""
