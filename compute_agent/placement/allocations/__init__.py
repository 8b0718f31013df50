"""Allocations in placement: claims, moves and removals, and the amounts that they name."""
