"""Kernel densities."""
