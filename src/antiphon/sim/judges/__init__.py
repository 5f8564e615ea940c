"""TODO sim/judges"""
