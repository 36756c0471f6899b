"""Anthropic's wire forms: what a body means, what an answer looks like."""
