"""Views of a channel: how its members agree on who is in it, and what they have delivered. Pure."""
