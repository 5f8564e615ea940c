"""`antiphon demo`: a replicated table that survives its servers, with a report."""
