"""The commands for research."""
