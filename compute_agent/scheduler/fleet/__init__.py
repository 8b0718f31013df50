"""State of the fleet beside placement: announcements, host aggregates, service versions."""
