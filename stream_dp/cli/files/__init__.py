"""Files that people hand to commands: rows, statements, and what can be said of them before they are sent."""
