"""Ways to placement: over HTTP with a token of keystone, in this process, or scripted by a test."""
