"""Simulated programs: the real client core, and what they do with it."""
