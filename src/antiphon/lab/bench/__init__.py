"""`antiphon bench`: real processes, measured side by side with a bare relay."""
