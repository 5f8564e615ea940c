"""Drivers of the pure core: files, sockets, clocks, processes."""
