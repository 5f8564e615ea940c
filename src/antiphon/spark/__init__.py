"""Pipelines on Spark: what leaves the log is a table. Needs the extra `antiphon[spark]`.

This package knows the public API and the formats alone. Nothing here starts Spark by being
imported; `session.start` does.
"""
