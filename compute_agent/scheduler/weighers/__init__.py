"""Weighers, which order the hosts and the candidates on one, the best first.

`order` puts hosts in order; `candidates` puts the candidates within a host in order.
"""
