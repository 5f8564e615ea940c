"""The state machine on the log, which runs on every server alike, entry by entry. Pure."""
