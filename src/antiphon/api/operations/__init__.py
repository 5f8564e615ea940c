"""The operations of both fronts, as scripts that leave the waiting to them: contexts, producers,
consumers, members."""
