"""TODO reports"""
