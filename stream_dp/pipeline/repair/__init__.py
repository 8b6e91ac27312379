"""What operators do with a partition that no worker holds, and the way on after a fault."""
