"""The pages that show the fleet in a browser: their files, and the one read that the API lacks."""
