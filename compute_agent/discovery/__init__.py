"""Facts about this machine, read by sources that know nothing of placement."""
