"""One server's side of its clients: connections, acknowledgements, proposals. Pure."""
