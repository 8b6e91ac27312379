"""Differentially private answers to counting queries about a growing table."""

__version__ = "0.1.0"
