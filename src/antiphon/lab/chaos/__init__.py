"""`antiphon chaos`: real servers and programs under faults, judged in the end."""
