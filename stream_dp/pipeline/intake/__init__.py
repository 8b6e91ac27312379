"""What comes in: records become requests, and each has its effect."""
