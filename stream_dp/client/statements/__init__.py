"""Statements: from what a person writes to queries, and from answers to a table."""
