"""Who may do what: rules of oslo.policy and their enforcement."""
