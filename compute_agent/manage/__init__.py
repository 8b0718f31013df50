"""Work by hand, offline or online: the work behind `compute-manage`."""
