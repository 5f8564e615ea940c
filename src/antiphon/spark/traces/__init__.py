"""TODO spark/traces"""
