"""Calls of functions in an answer's text: the formats of models, data where they can be."""
