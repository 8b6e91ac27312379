"""The commands of an operator, and what these need."""
