"""TODO blocks/threads"""
