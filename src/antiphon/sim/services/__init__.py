"""TODO sim/services"""
