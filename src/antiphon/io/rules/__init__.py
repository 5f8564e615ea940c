"""Which connections are taken, kept, dialled again and ended. Pure: sockets, clocks and threads are
in the modules of `io`, which ask the classes here and do as they say."""
