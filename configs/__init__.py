"""Typed settings. Knows neither torch nor Ray."""
