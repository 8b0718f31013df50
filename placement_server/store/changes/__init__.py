"""The feed of changes, and consistent reads of the trees that changed."""
