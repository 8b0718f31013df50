"""Provider config files (provider.yaml): additions of an operator to providers of this agent."""
