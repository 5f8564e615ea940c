"""Spark's format `antiphon`: reading the log by position, publishing exactly once."""
