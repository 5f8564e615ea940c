"""What the blocks do, written once for both fronts: scripts over ports. Nothing here waits."""
