"""In-memory drivers."""

__all__: list[str] = []
