"""Weighers: which of the hosts, and which of the candidates on one, is the best.

`order` puts hosts in order; `candidates` puts the candidates within a host in order.
"""
