"""TODO spark/audit"""
