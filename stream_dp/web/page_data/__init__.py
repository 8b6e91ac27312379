"""What the pages show, computed from the topics."""
