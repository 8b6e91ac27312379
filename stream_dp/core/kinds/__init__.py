"""Answerers of other kinds of questions than counting, on the lines that the counts are charged to."""
