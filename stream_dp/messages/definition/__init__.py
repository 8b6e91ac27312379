"""The definition of a data set: its attributes, its promise, its profile, and the rules between them."""
