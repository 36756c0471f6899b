"""Everything that knows Ray or HTTP."""
