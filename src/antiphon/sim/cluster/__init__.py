"""TODO sim/cluster"""
