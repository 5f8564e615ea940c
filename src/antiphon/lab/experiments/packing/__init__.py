"""TODO lab/experiments/packing"""
