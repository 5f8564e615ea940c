"""TODO broker/home"""
