"""The policy: rules of oslo.policy on who may do what, and their enforcement."""
