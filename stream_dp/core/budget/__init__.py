"""Privacy loss in integers: the lines of blocks, and who may charge what to them."""
