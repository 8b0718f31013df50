"""Tests of the choice of hosts and of claims on them."""
