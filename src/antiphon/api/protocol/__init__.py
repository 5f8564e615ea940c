"""The client's side of the clients' protocol, without sockets, clocks or threads. Pure."""
