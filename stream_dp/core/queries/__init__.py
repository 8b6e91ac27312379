"""What can be asked: conditions, predicates and queries."""
