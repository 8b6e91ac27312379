"""The commands that everybody uses."""
