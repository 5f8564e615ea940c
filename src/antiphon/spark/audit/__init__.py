"""`antiphon audit`: P1 to P5 and the orders over traces of any size, on Spark."""
