"""Routes that OpenStack's API does not have: one module per route, as those beside this folder."""
