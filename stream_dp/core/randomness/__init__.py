"""Exact noise and exact choices, made of the operating system's randomness."""
