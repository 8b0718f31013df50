"""The schema's revisions, and the names every database starts with."""
