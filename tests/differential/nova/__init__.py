"""The published nova as the other side: its objects and clients call ours, its classes judge."""
