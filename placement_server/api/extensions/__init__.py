"""Routes that OpenStack's API does not have: one module per route, as in `resources`."""
