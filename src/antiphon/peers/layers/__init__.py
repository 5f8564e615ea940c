"""The layers of a peer stack: each keeps one promise, and can be replaced alone. Pure."""
