"""TODO journal"""
