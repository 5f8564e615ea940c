"""TODO api/protocol"""
