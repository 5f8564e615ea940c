"""Groups in the state machine: members, views, suspicions, state requests. Pure."""
