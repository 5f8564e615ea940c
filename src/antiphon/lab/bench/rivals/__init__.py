"""`antiphon bench peers`: the same work done by other messaging systems, in one run."""
