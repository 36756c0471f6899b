"""The OpenAPI document of the server's own routes."""
