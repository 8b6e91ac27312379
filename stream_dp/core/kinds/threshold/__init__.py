"""The kind ``threshold``: the tree of counts, partitions, and their answerer."""
