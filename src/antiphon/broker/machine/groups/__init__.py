"""TODO broker/machine/groups"""
