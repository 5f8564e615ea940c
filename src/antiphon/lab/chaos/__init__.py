"""TODO lab/chaos"""
