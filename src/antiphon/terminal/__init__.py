"""The output of all commands, so that no text from outside is taken for markup."""
