"""TODO lab/bench"""
