"""The log of the servers inside processes (`peer:`): entries, ordered by a channel instead of by
replicas. Pure: what `driver/` is for servers, over what `peers/channel/` is for programs."""
