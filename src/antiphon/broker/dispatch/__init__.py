"""TODO broker/dispatch"""
