"""The planner: which cells, CPUs, pages and devices of a host a guest gets, or why none. Pure."""
