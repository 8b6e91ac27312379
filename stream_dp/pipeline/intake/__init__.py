"""What comes in: records become requests, and rows wait for a phase."""
