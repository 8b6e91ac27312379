"""Values that a data set finds by itself, and gives names."""
