"""Choices about one query, from public numbers only: what to measure, how precisely, at what price."""
