"""TODO api/classic"""
