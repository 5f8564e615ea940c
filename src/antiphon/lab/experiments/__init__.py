"""TODO lab/experiments"""
