"""TODO api/messages"""
