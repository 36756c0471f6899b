"""Models that advance many sequences by one step. torch and transformers live here only."""
