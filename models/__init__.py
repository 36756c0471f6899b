"""The engine: text in, events out. Knows neither HTTP nor Ray."""
