"""Densities of categories and numbers together."""
