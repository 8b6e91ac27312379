"""The data sets in hand: each with its private rows, its public mechanism, and who may do what with it."""
