"""Sockets, files, clocks, threads, configuration: what the pure rooms are driven by."""
