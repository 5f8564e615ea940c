"""TODO log"""
