"""TODO spark/archive"""
