"""Logs that Spark reads by position: a server's and a journal folder's; packs as Arrow columns."""
