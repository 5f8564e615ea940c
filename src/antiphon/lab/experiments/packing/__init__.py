"""The packing experiment: JBora's sources and tables, with our policies."""
