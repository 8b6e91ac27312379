"""What is said of a definition, and of rows under it, before anything is sent."""
