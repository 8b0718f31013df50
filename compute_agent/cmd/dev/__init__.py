"""The command `compute-agent dev`: placement-server, agent and scheduler on one machine."""
