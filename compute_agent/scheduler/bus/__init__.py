"""The scheduler on the message bus: its calls, and questions to one that runs."""
