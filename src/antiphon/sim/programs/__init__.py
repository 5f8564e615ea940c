"""Simulated programs, which use the real client core."""
