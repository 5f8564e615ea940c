"""Everything that commands print goes through here, so that no text from outside is markup."""
