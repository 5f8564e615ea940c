"""TODO lab/bench/rivals"""
