"""Spark's format `antiphon`: reading the log by position, with packs decoded to Arrow columns, and
publishing exactly once."""
