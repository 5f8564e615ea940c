"""The conversation of a program with its running stack: messages that wait to be sent or received,
and its end. Pure."""
