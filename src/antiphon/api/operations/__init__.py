"""TODO api/operations"""
