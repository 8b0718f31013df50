"""One pass from driver to placement, what startup makes different, and what an event means."""
