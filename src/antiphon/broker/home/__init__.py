"""One server's side of its clients: their connections, and how their packs, acknowledgements and
requests become entries of the log. Pure."""
