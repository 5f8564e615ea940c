"""TODO lab/demo"""
