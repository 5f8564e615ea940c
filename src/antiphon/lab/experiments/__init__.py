"""`antiphon experiment`: what the literature measured, measured here."""
