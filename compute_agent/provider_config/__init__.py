"""provider.yaml: what an operator adds to providers of this agent."""
