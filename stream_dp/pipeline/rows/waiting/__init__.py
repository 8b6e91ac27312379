"""Rows that were accepted and are in no block yet: where they are, their times, and their ticks."""
