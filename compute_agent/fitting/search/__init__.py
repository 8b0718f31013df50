"""The search for the best cells and devices of a guest, and the proof that there are none."""
