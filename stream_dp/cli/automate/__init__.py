"""The commands for queries that are asked again and again."""
