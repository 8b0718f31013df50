"""Tests of trees that are read and replaced with one request each, where placement offers that."""
