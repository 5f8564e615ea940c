"""The parts of the toolkit Isis, but for its interface (`toolkits/isis.py`)."""
