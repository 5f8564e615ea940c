"""Views of a channel: how its members agree on who is in one, and on its cuts: how much of each
stream of messages belongs to it when it ends (`decision.py: decide`). Pure."""
