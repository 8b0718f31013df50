"""Synchronisation of provider trees: the state in placement, the wanted one, and the way there."""
