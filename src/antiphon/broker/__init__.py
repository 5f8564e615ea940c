"""What the log means. `machine` runs on every server alike, `dispatch` and `home` on one."""
