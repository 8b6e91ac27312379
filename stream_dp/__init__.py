"""Differentially private answers to counting questions about a growing table."""

__version__ = "0.1.0"
