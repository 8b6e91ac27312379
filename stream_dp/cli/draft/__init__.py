"""Drafts of definitions: from a sample of rows, or from what their owner says about them."""
