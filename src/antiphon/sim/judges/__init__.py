"""What every simulated step is checked against."""
