"""Resource providers with their inventories, traits and aggregates."""
