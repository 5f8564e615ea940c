"""One running server, put together from its parts; embedded servers, local clusters, metrics."""
