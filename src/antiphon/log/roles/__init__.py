"""The roles of a replica: elections and their votes, leading, following, founding. Pure: a vote
leaves as the tail of a `Persist`, which the driver releases after the sync."""
