"""Claims of candidates in placement, their release, and the journal of unfinished ones."""
