"""The kinds ``threshold`` and ``quantile``: the tree of counts, partitions, and their answerer."""
