"""Measurements, each a command `antiphon bench NAME`."""
