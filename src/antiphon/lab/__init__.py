"""TODO lab"""
