"""What each API key may use: of requests and tokens in a minute, and of requests at once."""
