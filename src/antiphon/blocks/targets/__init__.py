"""TODO blocks/targets"""
