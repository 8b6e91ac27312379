"""Functions of published counts, with bars of their own. They are free, and have seen no data."""
