"""Sockets, files, clocks, threads and configuration, for the drivers of the pure rooms."""
