"""Claims on this host: which guest was promised what, in which cells, on which units."""
