"""TODO spark/source"""
