"""The log on disk: written, synced, read back after a crash. Pure: the disk is passed in."""
