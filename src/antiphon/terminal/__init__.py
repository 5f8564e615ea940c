"""TODO terminal"""
