"""HTTP to services whose answers are not trusted: what one answer may cost is bounded."""
