"""OpenAI's Responses: what a body means, what an answer looks like, where answers are kept."""
