"""Client library of the Placement API, shared by agent, scheduler and operators' tools."""
