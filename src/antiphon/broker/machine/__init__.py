"""TODO broker/machine"""
