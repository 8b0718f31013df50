"""The search for allocation candidates; `service` is its only door."""
