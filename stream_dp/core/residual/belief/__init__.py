"""What is publicly known: a fold over published measurements. Never sees the data."""
