"""What the log means: the state machine that runs on every server alike, entry by entry. Pure."""
