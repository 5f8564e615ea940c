"""How each front waits, and where its listeners run: in threads, or in tasks."""
