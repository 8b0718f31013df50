"""Filters: which hosts may take a request, beyond what placement can be asked.

One module per thing to go by; `registry` names them all.
"""
