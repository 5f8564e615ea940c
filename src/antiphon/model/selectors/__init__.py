"""TODO model/selectors"""
