"""TODO blocks/pure"""
