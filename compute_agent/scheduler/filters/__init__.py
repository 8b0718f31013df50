"""Filters of the hosts that may take a request, beyond what placement can be asked.

One module per subject; `registry` names them all.
"""
