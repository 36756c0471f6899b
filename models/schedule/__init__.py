"""Which sequence computes which tokens in which step, over which blocks. Standard library only."""
