"""Growth of costs with hosts, groups, clients, workers and schedulers."""
