"""Grammars over a vocabulary: which tokens may come next. By llguidance; knows no model."""
