"""TODO checkers"""
