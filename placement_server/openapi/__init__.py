"""The description of the API, as an OpenAPI document."""
