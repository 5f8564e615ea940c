"""The promises, as programs that judge histories: groups, linearizability. Pure."""
