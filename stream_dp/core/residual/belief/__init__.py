"""The public knowledge: a fold over published measurements. It never sees the data."""
