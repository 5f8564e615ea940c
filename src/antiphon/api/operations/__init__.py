"""What both fronts do, but for waiting: contexts, producers, consumers, members."""
