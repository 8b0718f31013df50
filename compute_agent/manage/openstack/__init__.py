"""The other services of a cloud, as far as operators' tools ask them."""
