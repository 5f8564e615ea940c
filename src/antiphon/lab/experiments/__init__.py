"""`antiphon experiment`: repeats the measurements of the literature."""
