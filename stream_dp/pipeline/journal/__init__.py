"""What is durable: the journal, what the next owner reads of it, what leaves then, and Redis behind it."""
