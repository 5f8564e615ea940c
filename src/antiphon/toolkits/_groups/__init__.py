"""Groups inside one cluster of peers, for the toolkits Transis, Phoenix and Isis."""
