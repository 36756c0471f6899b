"""Text to token ids and back. Knows tokenizers and jinja, neither torch nor transformers."""
