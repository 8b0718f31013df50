"""Other implementations as the other side, as black boxes in environments of their own."""
