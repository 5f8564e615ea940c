"""TODO sim/programs"""
