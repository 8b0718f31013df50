"""HTTP to services whose answers are not trusted: the cost of one answer is bounded."""
