"""Histories of hosts: what libvirt, the claim book of the agent and placement show of each guest.

By hand: `python -m tests.integration.holders --seconds 1800 --seed 1`.
"""
