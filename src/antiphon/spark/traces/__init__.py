"""Trace files as tables, and the figures in them."""
