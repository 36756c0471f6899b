"""Lines: what is small and frequent goes from replica to reader by one connection a pair."""
