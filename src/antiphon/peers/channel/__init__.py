"""The conversation of a program with its running stack: what waits to be sent, what waits to be
received, and when it ends. Pure."""
