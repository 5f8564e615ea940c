"""Charts as SVG and reports as one HTML file. No Spark in here."""
