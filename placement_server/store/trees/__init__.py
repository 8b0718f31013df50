"""Provider trees read whole, and replaced whole in one transaction."""
