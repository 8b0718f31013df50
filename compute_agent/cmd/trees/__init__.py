"""Provider trees in a terminal, for every program that shows one."""
