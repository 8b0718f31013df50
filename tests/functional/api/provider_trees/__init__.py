"""Tests of GET and PUT /provider_trees/{uuid}."""
