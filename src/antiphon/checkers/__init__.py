"""What is promised, as programs that judge histories: groups, linearizability. Pure."""
