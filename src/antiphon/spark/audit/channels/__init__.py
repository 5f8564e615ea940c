"""The audit of channels: whether processes without servers kept what their stacks promise."""
