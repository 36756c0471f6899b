"""Files and batches: OpenAI's Batch API over a folder on disk. Knows nothing of Ray."""
