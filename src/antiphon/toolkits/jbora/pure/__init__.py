"""What the toolkit decides: whose states make an exchange complete, and which request was answered.
Pure."""
