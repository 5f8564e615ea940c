"""Pipelines on Spark: the messages of the log as tables. Needs the extra `antiphon[spark]`.

This package uses the public API and the formats alone. Importing it does not start Spark;
`session.start` does.
"""
