"""How costs grow with hosts, groups, clients, workers and schedulers."""
