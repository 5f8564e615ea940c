"""Pipelines on Spark: the messages of the log as tables. Needs the extra `antiphon[spark]`.

This package uses the public API and the formats, and of `api/messages` the checks of headers that
`send` makes. Importing it does not start Spark; `session.start` does.
"""
