"""`antiphon archive`: sealed segments as Parquet, each message once."""
