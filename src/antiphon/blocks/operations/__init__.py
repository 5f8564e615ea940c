"""The operations of the blocks, written once for both fronts: scripts over ports. Nothing here
waits."""
