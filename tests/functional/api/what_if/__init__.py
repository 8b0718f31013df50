"""Tests of POST /what_if."""
